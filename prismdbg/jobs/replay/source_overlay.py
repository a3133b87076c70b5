"""The user's edited files laid over the captured ones: which of them stand in for which, and which match nothing.

The folder given is taken for one that the program knew: its working directory, its own folder, or one above those;
the one under which most of its files are found again by their relative path.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from prismdbg.capsule import transfer
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.files import Place, RankFile, read_files
from prismdbg.capsule.rank_json import RankJson
from prismdbg.capsule.rank_path import too_long
from prismdbg.errors import UsageError
from prismdbg.runtime.spec import LaidFile

MAX_FILES = 50_000
_SKIPPED = ("__pycache__", "node_modules", "site-packages")
START_HINT = "record with `prismdbg record --window all`, or capture with `--origin start`"


class NothingMatches(UsageError):
    """The folder is not there, or no file of it is one of the program's: another one is meant, or an older commit did
    not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """Paths of `replaced` and `added` are the rank's, `unchanged` is a count, `unmatched` are relative to the folder.

    added: Python files that were not captured; the edited program may import them.
    """

    folder: Path
    seen_as: PurePosixPath
    replaced: Mapping[str, Path]
    added: Mapping[str, Path]
    unchanged: int
    unmatched: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return not self.replaced and not self.added

    def over(self, laid: tuple[LaidFile, ...]) -> tuple[LaidFile, ...]:
        """The files of a replay, with the user's in the places of the captured ones."""
        kept = [file for file in laid if file.target not in self.replaced]
        mine = {**self.replaced, **self.added}
        return (
            *kept,
            *(LaidFile(source=source, target=target, mode=_mode(source)) for target, source in sorted(mine.items())),
        )


def make_overlay(capsule: Capsule, folder: Path) -> Overlay:
    """`UsageError` where the capsule does not start at the program's start, or nothing in the folder is of it."""
    _require_start(capsule, "--source")
    if not folder.is_dir():
        raise NothingMatches(f"{folder} is not a folder", hint="give the folder with the edited files")
    folder = folder.resolve()  # the runtimes have a working directory of their own
    captured = {file.path: file for file in read_files(capsule) if file.place is not Place.MISSING}
    own = sorted(_walk(folder))
    base = _seen_as(own, captured, likely_places(capsule.rank()))
    if base is None:
        raise NothingMatches(
            f"no file in {folder} has the relative path of a file of the program",
            hint="give a folder with the same layout as the program's folder, such as an edited copy of "
            f"{PurePosixPath(next(iter(captured), '')).parent}",
        )
    return _lay(folder, base, own, captured)


def edited_here(capsule: Capsule) -> tuple[str, ...]:
    """Files of the program, as captured, that differ on this machine, or are missing: what a plain process runs is not
    the recorded program. `UsageError` as `make_overlay`."""
    _require_start(capsule, "--runtime plain with --bisect")
    inside = (file for file in read_files(capsule) if file.place is Place.INSIDE)
    return tuple(file.path for file in inside if _differs(file))


def _differs(file: RankFile) -> bool:
    try:
        return transfer.hash_file(Path(os.path.realpath(file.path))).sha256 != file.sha256
    except OSError:
        return True


def _require_start(capsule: Capsule, option: str) -> None:
    if not capsule.manifest.origin.starts_program:
        raise UsageError(
            f"{option} needs a capsule from the program's start; this one's first collective is "
            f"{capsule.manifest.moment_a}, and its memory contains the old program",
            hint=START_HINT,
        )


def likely_places(rank: RankJson) -> tuple[PurePosixPath, ...]:
    """Folders that the user's may stand for, the likeliest first: the working directory, the program's folder, then
    those above it. Any folder of a captured file may be another one."""
    cwd = PurePosixPath(rank["cwd"])
    script = rank["argv"][0] if rank["argv"] else ""
    program = (cwd / script).parent if script and not script.startswith("-") and not too_long(script) else cwd
    program = PurePosixPath(os.path.normpath(program))
    return tuple(dict.fromkeys(place for place in (cwd, program, *program.parents) if len(place.parts) > 1))


def _seen_as(
    own: list[str], captured: Mapping[str, RankFile], likely: tuple[PurePosixPath, ...]
) -> PurePosixPath | None:
    found = _matches_by_place(own, captured)
    by_likelihood = dict.fromkeys([*map(str, likely), *found])
    best = max(by_likelihood, key=lambda place: found[place], default="")  # the first of those with as many
    return PurePosixPath(best) if found[best] else None


def _matches_by_place(own: list[str], captured: Iterable[str]) -> Counter[str]:
    """How many files of the user's each folder has. A capsule may list very many paths, and each is looked at once: of
    its ends, only those that are as deep as a file of the user's can be one."""
    names = set(own)
    ends = {name.rpartition("/")[2] for name in own}
    deepest = max((name.count("/") + 1 for name in own), default=0)
    found: Counter[str] = Counter()
    for path in captured:
        at = path.rfind("/")
        if path[at + 1 :] not in ends:
            continue
        for _ in range(deepest):
            if at <= 0:  # no folder stands for the root
                break
            if path[at + 1 :] in names:
                found[path[:at]] += 1
            at = path.rfind("/", 0, at)
    return found


def _lay(folder: Path, base: PurePosixPath, own: list[str], captured: Mapping[str, RankFile]) -> Overlay:
    replaced: dict[str, Path] = {}
    added: dict[str, Path] = {}
    unmatched: list[str] = []
    unchanged = 0
    for name in own:
        target, source = str(base / name), folder / name
        if target not in captured:
            if name.endswith(".py"):
                added[target] = source
            else:
                unmatched.append(name)
        elif transfer.hash_file(source).sha256 == captured[target].sha256:
            unchanged += 1
        else:
            replaced[target] = source
    return Overlay(
        folder=folder,
        seen_as=base,
        replaced=replaced,
        added=added,
        unchanged=unchanged,
        unmatched=tuple(unmatched),
    )


def _walk(folder: Path) -> Iterator[str]:
    """Relative paths of plain files; nothing hidden, nothing that an interpreter or an installer made."""
    seen = 0
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        folders[:] = [name for name in folders if not (Path(here) / name / "pyvenv.cfg").exists()]
        for name in files:
            path = Path(here) / name
            if name.startswith(".") or not path.is_file() or path.is_symlink():
                continue
            seen += 1
            if seen > MAX_FILES:
                raise UsageError(
                    f"{folder} contains more than {MAX_FILES} files", hint="give the folder of the program alone"
                )
            yield path.relative_to(folder).as_posix()


def _mode(source: Path) -> int:
    return source.stat().st_mode & 0o777
