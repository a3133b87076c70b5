"""The program's files: those of the capsule, where the editor has none at the same path with the same content."""

from __future__ import annotations

from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.files import Place, RankFile, read_content, read_files, read_text
from prismdbg.dap.arguments import Arguments
from prismdbg.dap.handles import Handles
from prismdbg.errors import CapsuleError, PrismError, UsageError
from prismdbg.model.frame import is_program
from prismdbg.session.known import Known

MAX_SOURCE_BYTES = 4 << 20

Json = dict[str, Any]


class Sources:
    def __init__(self, capsule: Capsule, known: Known) -> None:
        self._capsule, self._known = capsule, known
        self._inside = _inside(capsule)
        self._references: Handles[str] = Handles("source")
        self._numbers: dict[str, int] = {}
        self.of = cache(self._of)

    def _of(self, path: str) -> Json:
        """A `Source`: with a reference where the client is to ask for the capsule's own."""
        source: Json = {"name": PurePosixPath(path).name, "path": path}
        if not is_program(path):
            return {**source, "presentationHint": "deemphasize"}
        if path in self._inside and not self._is_here(path):
            if path not in self._numbers:
                self._numbers[path] = self._references.add(path)
            return {**source, "sourceReference": self._numbers[path], "origin": "from the capsule"}
        return source

    def content(self, arguments: Arguments) -> Json:
        """The answer to `source`."""
        number = arguments.number("sourceReference", 0) or arguments.object("source").number("sourceReference", 0)
        path = self._references.get(number) if number else self.path_of(arguments.object("source"))
        if path not in self._inside:
            raise UsageError(f"the capsule does not contain {path}")
        return {"content": self._read(path), "mimeType": "text/x-python"}

    def path_of(self, source: Arguments) -> str:
        """The program's file that a client means: the one whose path has most in common with its own, from the end;
        of several, the one with the fewest folders. `UsageError` where the program has none of that name, or two that
        lie alike."""
        if source.has("sourceReference") and (number := source.number("sourceReference")):
            return self._references.get(number)
        wanted = PurePosixPath(source.text("path", source.text("name", "")))
        paths = {*self._known.files, *(path for path, _ in self._known.lines)}
        named = [path for path in sorted(paths) if PurePosixPath(path).name == wanted.name]
        if not named:
            if not paths:  # nothing is known of the program's files
                return str(wanted)
            names = ", ".join(self._known.file_names)
            raise UsageError(f"the program has no file {wanted.name}", hint=f"use one of: {names}")
        nearest = min(_distance(path, wanted) for path in named)
        found = [path for path in named if _distance(path, wanted) == nearest]
        if len(found) > 1:
            raise UsageError(
                f"{wanted.name} may be {found[0]} or {found[1]}",
                hint="use the file in a folder with the same name as in the program",
            )
        return found[0]

    def _is_here(self, path: str) -> bool:
        """This machine has the same file at the same path."""
        try:
            here, file = Path(path), self._inside[path]
            if not here.is_file() or not here.stat().st_size == file.size_bytes <= MAX_SOURCE_BYTES:
                return False
            return here.read_bytes() == read_content(self._capsule, file)
        except OSError:
            return False

    def _read(self, path: str) -> str:
        file = self._inside[path]
        if file.size_bytes > MAX_SOURCE_BYTES:
            raise UsageError(f"{path} has {file.size_bytes} bytes; at most {MAX_SOURCE_BYTES} are shown")
        try:
            return read_text(self._capsule, file)
        except OSError as error:
            raise CapsuleError(f"{path} cannot be read from the capsule: {error.strerror}") from None


def _inside(capsule: Capsule) -> dict[str, RankFile]:
    """By path; nothing where the capsule's index cannot be read."""
    try:
        return {file.path: file for file in read_files(capsule) if file.place is Place.INSIDE}
    except PrismError:
        return {}


def _distance(path: str, wanted: PurePosixPath) -> tuple[int, int]:
    mine = PurePosixPath(path)
    return -_common(mine, wanted), len(mine.parts)


def _common(path: PurePosixPath, wanted: PurePosixPath) -> int:
    """How many parts are the same, from the end."""
    count = 0
    for mine, other in zip(reversed(path.parts), reversed(wanted.parts), strict=False):
        if mine != other:
            break
        count += 1
    return count
