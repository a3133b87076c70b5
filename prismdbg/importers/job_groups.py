"""Members of groups, for the readers of all files of a job.

A file can describe a group by its first member, a stride and a size: then three numbers ask for as many members as they
like. All files of a job together get as many as a large job has, and one more for each of their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from prismdbg.capsule.limits import MAX_IMPORTED_RANKS
from prismdbg.errors import CapsuleError
from prismdbg.model.collective import Group


class JobGroups:
    """Equal lists of members are made once, and lists that lie in a file of their own are read once."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._left = MAX_IMPORTED_RANKS + sum(file.stat().st_size for file in files if file.is_file())
        self._told: set[tuple[str, range]] = set()
        self._made: dict[range, tuple[int, ...]] = {}
        self._files: dict[Path, dict[str, Group] | CapsuleError] = {}

    def members(self, name: str, start: int, stride: int, size: int) -> tuple[int, ...]:
        """Of the group `name`, empty for numbers that cannot be. `CapsuleError` where all are more than there may
        be."""
        if not (start >= 0 and stride > 0 and size > 0 and start + stride * size <= MAX_IMPORTED_RANKS):
            return ()
        ranks = range(start, start + stride * size, stride)
        if (name, ranks) not in self._told:
            self._take(size)
            self._told.add((name, ranks))
        if ranks not in self._made:
            self._made[ranks] = tuple(ranks)
        return self._made[ranks]

    def of_file(self, path: Path, read: Callable[[Path], dict[str, Group]]) -> dict[str, Group]:
        if path not in self._files:
            try:
                self._files[path] = read(path)
            except CapsuleError as error:
                self._files[path] = error
        if isinstance(found := self._files[path], CapsuleError):
            raise found
        return found

    def _take(self, members: int) -> None:
        if members > self._left:
            raise CapsuleError(
                "the sizes of groups ask for more members than files of this size can be about",
                hint="fetch the file again: it is damaged or was altered",
            )
        self._left -= members
