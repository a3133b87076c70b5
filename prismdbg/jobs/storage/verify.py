"""Is this capsule what its manifest says, and can it be replayed? Reads everything once, changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path, PurePosixPath

from prismdbg.capsule import checked_json, exact_file, files, layout, rank_path, transfer
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.limits import MAX_MADE_FOLDERS
from prismdbg.capsule.log.coverage import NOTHING_TO_COMPARE, start_of
from prismdbg.capsule.manifest import FileEntry, Manifest, Origin
from prismdbg.capsule.memory_reader import read_parts
from prismdbg.capsule.rank_json import RankJson, startable_again
from prismdbg.capsule.rank_path import has_more_folders
from prismdbg.capsule.spawned import MOST_BYTES
from prismdbg.capsule.state_snapshot import DESCRIPTION, PROLOGUE, require_whole
from prismdbg.capsule.walk import entries
from prismdbg.errors import CapsuleError
from prismdbg.log.log_check import gaps, read_checked, rows_of
from prismdbg.model.meanwhile import by_bytes, working
from prismdbg.model.plurals import counted


class Severity(StrEnum):
    FATAL = "fatal"  # not to be used
    INCOMPLETE = "incomplete"  # unharmed, to be looked at; it cannot be replayed
    NOTE = "note"  # worth knowing; a replay is still what it says


INCONCLUSIVE = f"a replay is inconclusive: {NOTHING_TO_COMPARE}"
_VERBS = frozenset({"begins", "cannot", "contains", "ends", "has", "is", "lacks", "was"})


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    where: str
    text: str

    def __str__(self) -> str:
        """`log lacks ...`; with a colon where the text is a sentence of its own."""
        colon = "" if self.text.partition(" ")[0] in _VERBS else ":"
        return f"{self.where}{colon} {self.text}"


def verify(path: Path) -> list[Finding]:
    """The notes on a whole capsule. `CapsuleError` at the first fatal finding."""
    return _not_fatal(path, findings(path))


def require_replayable(capsule: Capsule) -> Capsule:
    """Before anything in it is run: `CapsuleError` where `verify` finds it damaged or incomplete. Returns it with the
    folder that was verified, which may have another name by then."""
    check_manifest(capsule)
    try:
        with exact_file.held(str(capsule.path)) as (folder, held):
            found = _not_fatal(capsule.path, _named(findings(held), held, capsule.path))
            if Capsule.open(held).manifest != capsule.manifest:
                raise exact_file.replaced(str(capsule.path))
    except OSError as error:
        raise CapsuleError(
            f"{capsule.path} cannot be opened: {error.strerror}",
            hint="check its permissions, or copy it to another folder",
        ) from error
    for finding in found:
        if finding.severity is Severity.INCOMPLETE:
            raise CapsuleError(
                f"{capsule.path} cannot be replayed: {finding}", hint="run `prismdbg open` to view the recording"
            )
    return replace(capsule, folder=folder)


def _named(found: Iterable[Finding], held: Path, path: Path) -> Iterator[Finding]:
    return (replace(finding, text=finding.text.replace(str(held), str(path))) for finding in found)


def check_manifest(capsule: Capsule) -> None:
    """What the manifest alone says: a replay starts at the start moment, so what was received from there on must be
    there."""
    manifest = capsule.manifest
    if manifest.not_replayable:
        raise CapsuleError(
            f"the capsule, whose first collective is {manifest.moment_a}, is {manifest.not_replayable}",
            hint="record with a larger --window, or with --checkpoint-every within it; `prismdbg open` shows the rest",
        )


def require_named_files(capsule: Capsule) -> None:
    """Before its files are read: `CapsuleError` unless there are exactly those that the manifest names, plain and of
    their sizes. What they contain is not looked at."""
    _not_fatal(capsule.path, _tree(capsule, _size))


def _not_fatal(path: Path, found: Iterable[Finding]) -> list[Finding]:
    notes: list[Finding] = []
    for finding in found:
        if finding.severity is Severity.FATAL:
            raise CapsuleError(
                f"{path}: {finding}", hint="capture or fetch it again: the capsule is damaged or altered"
            )
        notes.append(finding)
    return notes


def findings(path: Path) -> Iterator[Finding]:
    """Everything there is to say, as it is found. A manifest that cannot be read ends it at once."""
    try:
        capsule = Capsule.open(path)
    except CapsuleError as error:
        yield Finding(Severity.FATAL, layout.MANIFEST, str(error))
        return
    yield from _missing_parts(capsule.manifest)
    damaged = False
    with working() as tell:
        read = by_bytes(tell, "checking files", capsule.manifest.size_bytes)
        for finding in _tree(capsule, partial(_content, read)):
            damaged |= finding.severity is Severity.FATAL
            yield finding
    if not damaged:  # what is known to be altered is not read any further
        yield from _parts(capsule)
        yield from _log(capsule)
        yield from _memory(capsule)
        yield from _state(capsule)
    yield from _notes(capsule.manifest)


def _fatal(capsule: Capsule, name: str, error: CapsuleError) -> Finding:
    """With the name of the file once: `Finding` has it."""
    return Finding(
        Severity.FATAL, name, str(error).removeprefix(f"{capsule.path / name}: ").removeprefix("rank.json: ")
    )


def _memory(capsule: Capsule) -> Iterator[Finding]:
    if any(name.startswith(layout.MEMORY + "/") for name in capsule.manifest.files):
        try:
            read_parts(capsule.path / layout.MEMORY)
        except CapsuleError as error:
            yield _fatal(capsule, layout.MEMORY, error)


def _state(capsule: Capsule) -> Iterator[Finding]:
    """Its headers and its prologue; what the values are only the rank knows."""
    if capsule.manifest.origin is not Origin.STATE:
        return
    try:
        snapshot = require_whole(capsule.path / layout.STATE)
        read_checked(capsule.path / layout.STATE / PROLOGUE)
        past = checked_json.read(capsule.path / layout.RANK).integer("past_records")
    except CapsuleError as error:
        yield _fatal(capsule, layout.STATE, error)
        return
    if snapshot.past_records != past:
        yield Finding(Severity.FATAL, layout.STATE, f"begins at record {snapshot.past_records}, the capsule at {past}")


def _missing_parts(manifest: Manifest) -> Iterator[Finding]:
    for name in layout.REQUIRED:
        if name not in manifest.files:
            yield Finding(Severity.FATAL, name, "is missing: every capsule has it")
    if not any(name.startswith(layout.LOG + "/") for name in manifest.files):
        yield Finding(Severity.FATAL, layout.LOG, "is empty: there is nothing to replay")
    images = any(name.startswith(layout.CHECKPOINT + "/") for name in manifest.files)
    if manifest.origin is Origin.IMAGE and not images:
        yield Finding(Severity.FATAL, layout.CHECKPOINT, "is empty, but the origin is a checkpoint")
    if manifest.origin.starts_program and images:
        yield Finding(Severity.FATAL, layout.CHECKPOINT, f"contains a checkpoint, but the origin is {manifest.origin}")
    if manifest.origin is Origin.STATE and f"{layout.STATE}/{DESCRIPTION}" not in manifest.files:
        yield Finding(Severity.FATAL, layout.STATE, "is empty, but the origin is a state snapshot")


def _tree(capsule: Capsule, check: Callable[[Path, str, FileEntry], Iterator[Finding]]) -> Iterator[Finding]:
    """Every file is one that the manifest names, plain, and as `check` finds it; nothing else is there."""
    folders = layout.folders_of(capsule.manifest.files)
    seen: set[str] = set()
    unread: list[OSError] = []
    for entry in entries(capsule.path, unread.append):
        path = Path(entry.path)
        inside = path.relative_to(capsule.path).as_posix()
        if entry.is_dir(follow_symlinks=False):
            if inside not in folders and inside not in capsule.manifest.files:
                yield Finding(Severity.FATAL, repr(inside), "is a folder without a file that the manifest lists")
            continue
        seen.add(inside)
        is_regular = entry.is_file(follow_symlinks=False)
        if inside == layout.MANIFEST and is_regular:
            continue
        if inside not in capsule.manifest.files:
            yield Finding(Severity.FATAL, repr(inside), "is not listed in the manifest")
        elif not is_regular:
            yield Finding(Severity.FATAL, inside, "is a link or a special file")
        else:
            yield from check(path, inside, capsule.manifest.files[inside])
    for error in unread:
        yield Finding(Severity.FATAL, str(error.filename)[-80:], f"cannot be read: {error.strerror}")
    for name in sorted(capsule.manifest.files.keys() - seen):
        yield Finding(Severity.FATAL, name, "is missing")


def _size(path: Path, name: str, wanted: FileEntry) -> Iterator[Finding]:
    status = path.stat(follow_symlinks=False)
    if status.st_size != wanted.size_bytes:
        yield Finding(Severity.FATAL, name, f"has {counted(status.st_size, 'byte')}, expected {wanted.size_bytes:,}")
    elif problem := transfer.nearly_empty(status):
        yield Finding(Severity.FATAL, name, problem)


def _content(read: Callable[[int], None], path: Path, name: str, wanted: FileEntry) -> Iterator[Finding]:
    if found_in_size := [*_size(path, name, wanted)]:
        yield from found_in_size
        return
    try:
        found = transfer.hash_file(path, read)
    except OSError as error:
        yield Finding(Severity.FATAL, name, f"cannot be read: {error.strerror}")
        return
    if found.sha256 != wanted.sha256:
        yield Finding(Severity.FATAL, name, "has changed since the capsule was created (sha256 differs)")


def _parts(capsule: Capsule) -> Iterator[Finding]:
    for name in (layout.ENVIRONMENT, layout.SECRETS):
        if name in capsule.manifest.files:
            try:
                checked_json.read(capsule.path / name)
            except CapsuleError as error:
                yield _fatal(capsule, name, error)
    rank: RankJson = {}
    if layout.RANK in capsule.manifest.files:
        try:
            rank = capsule.rank()
            if not capsule.manifest.not_replayable:
                startable_again(rank, starts_program=capsule.manifest.origin.starts_program)
        except CapsuleError as error:
            yield _fatal(capsule, layout.RANK, error)
    yield from _kernels(rank, capsule.manifest.origin)
    if (entry := capsule.manifest.files.get(layout.SPAWNED)) is not None and entry.size_bytes > MOST_BYTES:
        yield Finding(Severity.FATAL, layout.SPAWNED, f"has {entry.size_bytes:,} bytes; the limit is {MOST_BYTES:,}")
    try:
        rank_files = files.read_files(capsule)
    except CapsuleError as error:
        yield _fatal(capsule, layout.FILES_INDEX, error)
        return
    if has_more_folders(_made(rank, rank_files), MAX_MADE_FOLDERS):
        text = f"with the folders in {layout.RANK} names more than {MAX_MADE_FOLDERS:,} folders for a replay to make"
        yield Finding(Severity.FATAL, layout.FILES_INDEX, text)
    for file in rank_files:
        if file.place is files.Place.MISSING:
            yield Finding(Severity.NOTE, file.path, "was read by the rank but could not be saved")
        elif file.place is files.Place.REDACTED:
            yield Finding(Severity.NOTE, file.path, "contains credentials and was left out: --with-file provides yours")
        elif file.place is files.Place.BOUND and (reason := files.changed(file)):
            yield Finding(Severity.INCOMPLETE, file.path, f"is needed and not in the capsule: {reason}")


def _kernels(rank: RankJson, origin: Origin) -> Iterator[Finding]:
    """Paths at which a replay would start the program, or bind something, and cannot: the kernel's, for instance."""
    looked_at: dict[str, tuple[str, str]] = {}  # by field: what it is, and what of it must have no problem
    if origin.starts_program:
        if rank.get("cwd", "/") != "/":
            looked_at["cwd"] = rank["cwd"], rank["cwd"]
        if path := rank.get("executable", ""):  # which may be named by way of another folder
            looked_at["executable"] = path, rank_path.usual(os.path.normpath(path))
    else:
        if path := rank.get("socket", ""):
            looked_at["socket"] = path, str(PurePosixPath(path).parent)
        if path := rank.get("inject", ""):
            looked_at["inject"] = path, path
    for name, (shown, path) in looked_at.items():
        if reason := rank_path.problem(path):
            yield Finding(Severity.FATAL, layout.RANK, f"{name} is {shown[:80]!r}, which {reason}")


def _made(rank: RankJson, rank_files: Iterable[files.RankFile]) -> Iterator[str]:
    """Folders that a replay makes for the rank."""
    yield from rank.get("folders", ())
    for path in (*rank.get("listed", ()), *(file.path for file in rank_files if file.place is not files.Place.MISSING)):
        yield path.rpartition("/")[0]


def _log(capsule: Capsule) -> Iterator[Finding]:
    if layout.RANK not in capsule.manifest.files:  # said already
        return
    try:
        log = read_checked(capsule.log)
        span = rows_of(log, start_of(capsule), capsule.manifest.moment_b)
    except CapsuleError as error:
        yield _fatal(capsule, layout.LOG, error)
        return
    if log.rank != capsule.manifest.rank:
        yield Finding(Severity.FATAL, layout.LOG, f"is of rank {log.rank}, expected {capsule.manifest.rank}")
    for text in gaps(log, span, capsule.log, capsule.manifest):
        yield Finding(Severity.FATAL, layout.LOG, text)
    if not len(span.records):
        yield Finding(Severity.NOTE, layout.LOG, INCONCLUSIVE)


def _notes(manifest: Manifest) -> Iterator[Finding]:
    if manifest.contains_raw_memory:
        yield Finding(Severity.NOTE, layout.CHECKPOINT, "contains the rank's raw memory, including any secrets in it")
    if manifest.not_replayable:
        yield Finding(Severity.INCOMPLETE, layout.LOG, manifest.not_replayable)
    for text in manifest.notes:
        yield Finding(Severity.NOTE, layout.MANIFEST, text)
