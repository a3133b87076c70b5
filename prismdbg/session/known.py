"""What a capsule knows of the names that a stop may say: its groups, ranks, source lines, the program's words. Values;
what is empty or None is not known, and says nothing against a name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prismdbg.model.collective import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """lines: files and lines of the program's frames under each recorded collective. earlier: those of them under which
    the rank issued all of its collectives before it stood where a replay starts. files: the program's source.
    words: every word in it; a name that is not among them is none of the program's. peers: ranks, each of its group,
    that the recorded sends and receives are with."""

    groups: tuple[Group, ...] = ()
    world_size: int = 0
    lines: frozenset[tuple[str, int]] = frozenset()
    earlier: frozenset[tuple[str, int]] = frozenset()
    files: frozenset[str] = frozenset()
    words: frozenset[str] | None = None
    peers: frozenset[int] | None = None

    def has_group(self, name: str) -> bool:
        return not self.groups or any(name in (group.name, group.desc, group.title) for group in self.groups)

    def lines_of(self, file: str) -> tuple[int, ...]:
        """Those that a replay comes to."""
        return tuple(sorted({line for path, line in self.lines - self.earlier if is_file(file, path)}))

    def is_earlier(self, file: str, line: int) -> bool:
        return any(line == at and is_file(file, path) for path, at in self.earlier)

    def has_file(self, file: str) -> bool:
        return any(is_file(file, path) for path in self._paths)

    @property
    def file_names(self) -> tuple[str, ...]:
        """Short."""
        return tuple(sorted({path.rpartition("/")[2] for path in self._paths}))

    @property
    def _paths(self) -> Iterable[str]:
        return self.files | {path for path, _ in self.lines}


NOTHING = Known()


def is_file(wanted: str, path: str) -> bool:
    """`train.py` is also `/job/train.py`."""
    return path == wanted or path.endswith("/" + wanted)
