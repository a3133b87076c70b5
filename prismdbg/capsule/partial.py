"""What is still being written: a temporary sibling, locked while its writer lives.

One that a `kill -9` left behind can so be told from one that is being written, and removed. Locks of another host may
not be seen here: what has its mark is left alone for a day. Where the file system has no locks, all counts as being
written for a day, and is not removed unasked even then.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import platform
import re
import secrets
import shutil
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from prismdbg.errors import FacilityError, UsageError

_MARK = ".partial-"
_UNSEEN_KEPT_S = 24 * 3600.0
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
_NAME = re.compile(r"\..+\.partial-(?:([0-9a-f]{8})\.[a-z0-9_]{8}|removed-[0-9]+)", re.DOTALL)
_OLDER_NAME = re.compile(r"\..+\.partial-[a-z0-9_]{8}", re.DOTALL)  # of older versions, which did not name the host


@contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """A new locked folder beside `path`, 0700. Removed at the end, unless it was renamed to `path`.

    Folders that writers who were killed have left there go first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    made: tuple[Path, int] | None = None
    try:
        with _uninterrupted():
            made = _locked_folder(path)
        yield made[0]
    finally:
        if made is not None:
            shutil.rmtree(made[0], ignore_errors=True)
            os.close(made[1])


@contextmanager
def temporary_folder(word: str) -> Iterator[Path]:
    """A `partial_folder` in TMPDIR, for what is never given another name: the next one there removes it if this process
    is killed. `word`: what lies in it."""
    with partial_folder(Path(tempfile.gettempdir()) / f"prismdbg-{word}") as folder:
        yield folder


@dataclass(frozen=True, slots=True)
class PartialFile:
    """`file`: open for reading and writing, empty at first."""

    file: BinaryIO
    name: Path

    @property
    def place(self) -> Path:
        """What writers by name open. It leads to the file itself: whoever may write to the folder can put a link to
        some other file of ours in the place of its name."""
        return Path(f"/proc/self/fd/{self.file.fileno()}")

    def publish(self, path: Path) -> None:
        """Gives it its name. `FacilityError` where another file has the place of one of them: nothing says what that
        one is, and so nothing may vouch for it."""
        self.file.flush()
        self._require_at(self.name, path)
        self.name.rename(path)
        self._require_at(path, path)

    def _require_at(self, name: Path, path: Path) -> None:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self.file.fileno()), name.lstat()):
                return
        raise FacilityError(
            f"{path} was replaced by another file while it was written",
            hint="write it into a folder that only you may write to",
        )


@contextmanager
def partial_file(path: Path, mode: int = 0o666) -> Iterator[PartialFile]:
    """A new locked file beside `path`, with a name that nobody can foresee. Removed at the end, unless it was
    published. What writers who were killed have left there goes first."""
    remove_abandoned(path.parent)
    made: PartialFile | None = None
    try:
        with _uninterrupted():
            made = _locked_file(path, mode)
        yield made
    finally:
        if made is not None:
            with contextlib.suppress(OSError):
                made.name.unlink()
            with contextlib.suppress(OSError):  # what is flushed now is thrown away
                made.file.close()


def publish(partial: Path, path: Path) -> bool:
    """Gives the whole folder `partial` its name. False where something has that name: another process was faster."""
    try:
        partial.rename(path)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def publish_new(partial: Path, path: Path) -> None:
    """As `publish`, for a name that a user chose: `UsageError` where something has it."""
    if not publish(partial, path):
        raise already_exists(path)


def publish_copy(source: Path, path: Path, hint: str = "check its permissions and its disk") -> None:
    """A copy of the whole folder `source` as `path`, a name that a user chose. `FacilityError` where it cannot be
    written: nothing of it is left."""
    try:
        with partial_folder(path) as partial:
            shutil.copytree(source, partial, dirs_exist_ok=True)
            publish_new(partial, path)
    except OSError as error:
        why = error.strerror or str(error)  # of several files it is a list
        raise FacilityError(f"{path} cannot be written: {why}", hint=hint) from error


def already_exists(path: Path) -> UsageError:
    return UsageError(f"{path} already exists", hint="choose another name, or remove it first")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A signal that would end us is raised when the block has ended, so that what was made is known by then. Handlers
    run in the main thread alone."""
    came: list[int] = []
    previous: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        previous = {number: handler for number, handler in known.items() if callable(handler)}
    for number in previous:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def _locked_file(path: Path, mode: int) -> PartialFile:
    """As `_locked_folder`."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        name = path.with_name(f".{path.name}{_MARK}{_host()}.{secrets.token_hex(4)}")
        made = PartialFile(os.fdopen(os.open(name, flags, mode), "w+b"), name)
        if _is_held(made.file.fileno(), name):
            return made
        made.file.close()


def _is_held(descriptor: int, name: Path) -> bool:
    """Whether it is locked now, and another writer has not removed it before."""
    try:
        lock(descriptor)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: there nobody's looks abandoned
        return True
    return name.exists()


def _locked_folder(path: Path) -> tuple[Path, int]:
    """Until it is locked it looks abandoned, and may be removed by another writer."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}{_MARK}{_host()}.", dir=path.parent))
        try:
            descriptor = _locked(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if descriptor is not None:
            return folder, descriptor


def _locked(folder: Path) -> int | None:
    """None where another writer has it, or has removed it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if _is_held(descriptor, folder):
        return descriptor
    os.close(descriptor)
    return None


def remove_abandoned(folder: Path) -> None:
    """Removes partial folders and files of ours in there that nobody writes any more."""
    try:
        found = list(folder.iterdir())
    except PermissionError:  # a TMPDIR in which one may write, but not look
        return
    for left in found:
        is_ours = is_partial(left) and (is_own_folder(left) or _is_own_file(left))
        if not is_ours or _is_of_another(left):
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                lock(descriptor)
                _remove(left)
            finally:
                os.close(descriptor)


def _remove(path: Path) -> None:
    if is_own_folder(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()


def is_own_folder(path: Path) -> bool:
    """Of this user, and no link."""
    return _is_own(path, stat.S_ISDIR)


def _is_own_file(path: Path) -> bool:
    """As `partial_file` makes them; one that is being removed has no lock."""
    marked = _NAME.fullmatch(path.name)
    return marked is not None and marked[1] is not None and _is_own(path, stat.S_ISREG)


def _is_own(path: Path, kind: Callable[[int], bool]) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return kind(status.st_mode) and status.st_uid == os.getuid()


def removed_name(path: Path) -> Path:
    """The name beside `path` for what is being removed, this process's own."""
    return path.with_name(f".{path.name}{_MARK}removed-{os.getpid()}")


def lock(descriptor: int) -> None:
    """Held until the file is closed or the process ends."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_partial(path: Path) -> bool:
    """Whether it has a name that only we give: other programs have files like `.data.partial-1`, too. A name as older
    versions gave it may be theirs: it counts for a folder as we make it, once nobody writes it any more."""
    if _NAME.fullmatch(path.name) is not None:
        return True
    return _OLDER_NAME.fullmatch(path.name) is not None and is_own_folder(path) and _is_private(path) and _is_old(path)


def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _is_of_another(path: Path) -> bool:
    """Of another host, whose locks may not be seen here, and not old."""
    marked = _NAME.fullmatch(path.name)
    if marked is None or marked[1] in (None, _host()):
        return False
    return not _is_old(path)


def _is_private(path: Path) -> bool:
    """Whether it has the mode of `mkdtemp`."""
    with contextlib.suppress(OSError):
        return path.lstat().st_mode & 0o777 == 0o700
    return False


def _is_old(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - path.lstat().st_mtime >= _UNSEEN_KEPT_S
    return False


def is_abandoned(path: Path) -> bool:
    """Whether nobody writes this partial any more."""
    if _is_of_another(path):
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        lock(descriptor)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return _is_old(path)
    finally:
        os.close(descriptor)
    return True
