"""Logs that lie in a folder of their node, and how they come into RUN: each file is renamed to its place, and a reader
finds what a rank had written at some moment, never less than it found before.

RUN says where such a folder is. RUN may be foreign: a folder counts only if it is ours and says the same of itself.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from prismdbg.capsule.checked_json import Word, checked
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.reader import event_segments, iter_logs
from prismdbg.capsule.partial import lock
from prismdbg.capsule.state_snapshot import DESCRIPTION, TENSORS
from prismdbg.capsule.transfer import CHUNK_BYTES, FILE_MODE, open_plain, sync, write_sparse
from prismdbg.errors import CapsuleError, FacilityError
from prismdbg.jobs.storage.peak import FILE as PEAK
from prismdbg.jobs.storage.run_folder import TELEMETRY, read_json, write_json
from prismdbg.log.columns import newest_parts
from prismdbg.log.joining import join
from prismdbg.log.summary import summarized
from prismdbg.settings.overwritten_copies import FOLDER as OVERWRITTEN
from prismdbg.settings.rank_config import RANK_MEMORY
from prismdbg.settings.state_folders import STATES, states_of

Copied = Callable[[int], None]  # takes how many more bytes are copied, or were there already
PREFIX = "prismdbg-"
_ABOUT = "local.json"
_LEFT_S = 24 * 3600.0  # after which nobody writes a copy any more
_OF_A_RANK = re.compile(r"(payload\.[0-9]{5,9}\.seg|peak\.json|rank\.json|spawned\.pickle)")


class LocalJson(TypedDict):
    run: Word
    node: Word


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """What one node's ranks write of one job: laid out as RUN."""

    path: Path

    @property
    def ranks(self) -> Path:
        return self.path / "ranks"

    @property
    def states(self) -> Path:
        return self.path / STATES

    def describe(self, run: Path, node: str) -> None:
        write_json(self.path / _ABOUT, {"run": str(run), "node": node})

    def is_of(self, run: Path, node: str) -> bool:
        """Whether it is here, ours, and of this node of this run."""
        try:
            status = self.path.lstat()
            if not self.path.name.startswith(PREFIX) or self.path.is_symlink() or status.st_uid != os.geteuid():
                return False
            about = checked(LocalJson, read_json(self.path / _ABOUT), str(self.path / _ABOUT))
        except (OSError, CapsuleError):
            return False
        return (about["run"], about["node"]) == (str(run), node)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While this process copies or removes what is in it. A supervisor has it for itself as long as it runs.
        `FacilityError` where another process has it, `FileNotFoundError` where that has removed it."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._lock(descriptor)
            self.path.lstat()
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            lock(descriptor)
        except BlockingIOError:
            raise FacilityError(
                f"the logs in {self.path} are in use: their supervisor runs, or another `prismdbg publish`",
                hint="wait until it has ended, or end it; then run this again",
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # a file system without locks
                raise

    def size_bytes(self) -> int:
        """Of all files in it, as long as they are."""
        return sum(path.lstat().st_size for path in self.path.rglob("*") if path.is_file() and not path.is_symlink())

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _untold(_more_bytes: int) -> None:
    pass


def publish_logs(
    local: LocalFolder, run: Path, copied: Copied = _untold, between: Callable[[], None] = lambda: None
) -> None:
    """What `why` reads, of ranks that may go on: the event segments and their summaries. `between`: called before each
    rank, when no file is half copied."""
    for folder in _rank_folders(local):
        between()
        target = run / "ranks" / folder.name
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        _publish_log(folder, target, copied)
    _publish_readings(local, run / TELEMETRY, copied)


def publish_ends(local: LocalFolder, run: Path, newest_bytes: int) -> None:
    """Of each log what a reader of so many bytes of its end reads. The rest has to follow."""
    for folder in _rank_folders(local):
        target = run / "ranks" / folder.name
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        _publish(folder / fmt.SUMMARY, target / fmt.SUMMARY, _untold)
        segments = event_segments(folder)
        parts = newest_parts(segments, newest_bytes, summarized(target, segments)) if segments else []
        for path in dict.fromkeys(part.path for part in reversed(parts)):
            _publish(path, target / path.name, _untold)


def publish_all(local: LocalFolder, run: Path, copied: Copied = _untold) -> None:
    """Everything, of ranks that have ended. When it returns, RUN has it on its disk, and it can be removed here."""
    for folder in _rank_folders(local):
        with suppress(OSError, CapsuleError):  # an unreadable or damaged log: it comes along as it is, in more files
            join(folder)
    publish_so_far(local, run, copied)
    _sync_names(local, run)


def publish_so_far(local: LocalFolder, run: Path, copied: Copied = _untold) -> None:
    """Everything that there is now, of ranks that may go on."""
    publish_logs(local, run, copied)
    for folder in _rank_folders(local):
        target = run / "ranks" / folder.name
        for path in sorted(folder.iterdir()):
            if path.is_symlink():
                _publish_link(path, target / path.name)
            elif _OF_A_RANK.fullmatch(path.name):
                _publish(path, target / path.name, copied)
    for tree in _claimed(local):
        _publish_tree(tree, run / tree.relative_to(local.path), copied)
    _remove_half_copied(local, run)


def _sync_names(local: LocalFolder, run: Path) -> None:
    """Brings the names of what was copied from here to the disk. It opens nothing of other nodes in RUN: they copy
    meanwhile, and rename and remove files there."""
    copied = set(_rank_folders(local))
    for tree in (*_claimed(local), *_readings(local)):
        copied.update(_folders(tree))
    targets = {run / folder.relative_to(local.path) for folder in copied}
    for folder in sorted(targets | {target.parent for target in targets}):
        sync(folder)


def _rank_folders(local: LocalFolder) -> list[Path]:
    return list(iter_logs(local.ranks)) if local.ranks.is_dir() else []


def _claimed(local: LocalFolder) -> list[Path]:
    """Launchers and workers leave traces, too, until they turn out to be no ranks."""
    memory = local.path / RANK_MEMORY
    traces = [(folder / RANK_MEMORY).resolve() for folder in _rank_folders(local)]
    trees = [trace for trace in traces if trace.is_dir() and trace.parent == memory.resolve()]
    return [*trees, *(local.path / name for name in (STATES, OVERWRITTEN) if (local.path / name).is_dir())]


def _readings(local: LocalFolder) -> list[Path]:
    folder = local.path / TELEMETRY
    return list(folder.iterdir()) if folder.is_dir() else []


def _folders(tree: Path) -> Iterator[Path]:
    """Lists the folders that `_publish_tree` copies."""
    yield tree
    for path in tree.iterdir():
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            yield from _folders(path)


def _publish_log(folder: Path, target: Path, copied: Copied) -> None:
    """From the summary to the newest segment, then back to the oldest: the rank goes on meanwhile, and so each segment
    is copied after all that follow it, and holds what they refer to. Last the preface, which says what was dropped."""
    for left in target.glob(".*.new"):  # of a copy that was cut short
        with suppress(FileNotFoundError):
            if time.time() - left.lstat().st_ctime > _LEFT_S:
                left.unlink()
    for name in (fmt.SUMMARY, PEAK):
        _publish(folder / name, target / name, copied)
    for number, path in reversed(event_segments(folder)):
        if number:
            _publish(path, target / path.name, copied)
    there = {path.name for _, path in event_segments(folder)}
    _publish(folder / fmt.event_segment(0), target / fmt.event_segment(0), copied)
    for path in target.glob("events.*.seg"):  # dropped, or joined into a longer one
        if path.name not in there:
            path.unlink()


def _publish_readings(local: LocalFolder, target: Path, copied: Copied) -> None:
    """Of each of its nodes; a segment that the sampler has dropped goes there, too."""
    for folder in _readings(local):
        _publish_tree(folder, target / folder.name, copied)
        kept = {path.name for path in folder.iterdir()}
        for path in (target / folder.name).iterdir():
            if path.name not in kept and not path.name.startswith("."):
                path.unlink()


def _remove_half_copied(local: LocalFolder, run: Path) -> None:
    """State snapshots that their rank dropped meanwhile: a snapshot in RUN is whole."""
    for home in _listed(local.states):
        for step in states_of(run / STATES / home.name):
            copy = run / STATES / home.name / str(step)
            is_whole = all((copy / name).exists() for name in (DESCRIPTION, TENSORS))
            if not is_whole and not (home / str(step)).exists():
                shutil.rmtree(copy)


def _listed(folder: Path) -> list[Path]:
    """What is finished: the name of anything else begins with a dot. Nothing where a rank has dropped the folder."""
    with suppress(FileNotFoundError):
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    return []


def _publish_tree(source: Path, target: Path, copied: Copied) -> None:
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in _listed(source):
        if path.is_dir() and not path.is_symlink():
            _publish_tree(path, target / path.name, copied)
        elif path.is_file():
            _publish(path, target / path.name, copied)


def _publish_link(source: Path, target: Path) -> None:
    """As that from a rank's folder to its trace: inside the run."""
    to = source.readlink()
    if to.is_absolute() or target.is_symlink():
        return
    target.symlink_to(to)


def _publish(source: Path, target: Path, copied: Copied) -> None:
    """Copies it, unless it is there as it is, or was dropped since: then the preface says so. The
    content is on the disk before the copy has its name.

    The copy has the time that the file had before it was copied: what is written meanwhile is seen the next time."""
    try:
        content = open_plain(source)
    except FileNotFoundError:
        return
    with content as read:
        status = os.fstat(read.fileno())
        if _is_as(target, status):
            copied(status.st_size)
            return
        new = target.with_name(f".{target.name}.{secrets.token_hex(4)}.new")
        try:
            with os.fdopen(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), "wb") as out:
                while chunk := read.read(CHUNK_BYTES):
                    write_sparse(out, chunk)
                    copied(len(chunk))
                out.truncate(max(out.tell(), status.st_size))
                out.flush()
                os.utime(out.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
                os.fsync(out.fileno())
            new.rename(target)
        except BaseException:
            new.unlink(missing_ok=True)
            raise


def _is_as(target: Path, source: os.stat_result) -> bool:
    try:
        there = target.lstat()
    except OSError:
        return False
    return (there.st_size, there.st_mtime_ns) == (source.st_size, source.st_mtime_ns)
