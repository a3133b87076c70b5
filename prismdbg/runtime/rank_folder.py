"""The one folder of a replay that the rank may write into, as the host sees it: through descriptors that were opened
before the rank began. The rest of the session is not its to write (`runtime.spec.ReplaySpec`)."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from prismdbg.capsule.transfer import data_parts
from prismdbg.errors import CapsuleError, RankLost
from prismdbg.runtime.foreign_files import open_folder, open_regular, read_at, remove
from prismdbg.runtime.spec import OUTPUT

MAX_READ_BYTES = 16 << 20
MAX_COPIED_BYTES = 8 << 30
MAX_FILES = 10_000


class Output:
    """What the rank wrote to standard output and error. Stays what it was, whatever the rank does to the name."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, start: int, most_bytes: int) -> bytes:
        return read_at(self._fd, start, most_bytes)

    def newest(self, most_bytes: int = MAX_READ_BYTES) -> bytes:
        """The end of it."""
        return self.read(max(self.size_bytes - most_bytes, 0), most_bytes)

    def text(self, most_bytes: int = MAX_READ_BYTES) -> str:
        """The end of it, and how much was left out."""
        left_out = self.size_bytes - most_bytes
        note = f"... {left_out} bytes left out\n" if left_out > 0 else ""
        return note + self.newest(most_bytes).decode("utf-8", "replace")

    def cut(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)

    @property
    def status(self) -> os.stat_result:
        return os.fstat(self._fd)

    def become(self, descriptor: int) -> None:
        """Another file from now on, of the same owner. Takes `descriptor` over."""
        if os.geteuid() == 0:
            os.fchown(descriptor, self.status.st_uid, self.status.st_gid)
        os.dup2(descriptor, self._fd, inheritable=False)
        os.close(descriptor)

    def close(self) -> None:
        os.close(self._fd)


class RankFolder:
    """Made where it is not there yet, with a new, empty output in it. Close it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = open_folder(path)
        self._copy: Path | None = None
        self.output = Output(self._new_output())

    def renew(self) -> None:
        """For another start of the program, when nothing of the last one runs: nothing but an empty output is left."""
        for entry in list(os.scandir(self._fd)):
            if entry.name != OUTPUT:
                remove(entry.name, self._fd)
        self.output.cut(0)
        self._mend_output()

    def mend(self, socket: str) -> None:
        """For another start from a checkpoint, which brings its open files along but binds its `socket` anew."""
        with contextlib.suppress(FileNotFoundError):
            remove(socket, self._fd)
        self._mend_output()

    def _mend_output(self) -> None:
        """The name leads to the output again; where the rank removed it, to a new one."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(OUTPUT, dir_fd=self._fd, follow_symlinks=False), self.output.status):
                return
            remove(OUTPUT, self._fd)
        self.output.become(self._new_output())

    def _new_output(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(OUTPUT, flags, 0o600, dir_fd=self._fd)

    @contextmanager
    def reach(self, name: str) -> Iterator[str]:
        """An address that leads to the socket of this name, and to no other. `RankLost` where there is none."""
        try:
            descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError as error:
            raise RankLost(f"no agent answers at {self.path / name}: {error.strerror}") from error
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                raise RankLost(f"no agent answers at {self.path / name}: it is not a socket")
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)

    def copied(self, name: str, into: Path) -> Path:
        """A copy, in `into`, of the files in its folder `name`, for those who map what they read: the rank could cut a
        file of its own short under them. What was copied before and is not the newest of its kind is not copied again;
        only the last copy is kept.

        `CapsuleError` where it holds anything but regular files, or too much. name: as the rank gave it."""
        target = into / name
        if not name or "/" in name or name in (".", ".."):
            raise CapsuleError(
                f"{name!r} is not the name of a trace", hint="treat the capsule as hostile: its program chose this name"
            )
        try:
            folder = open_folder(name, self._fd)
        except (OSError, ValueError) as error:
            raise CapsuleError(f"the rank wrote no trace into {name!r}: {error}", hint="run it again") from error
        if target != self._copy:
            self._drop_copy()
        self._copy = target
        try:
            target.mkdir(parents=True, exist_ok=True)
            _copy_files(folder, target)
        except OSError as error:
            self._drop_copy()
            raise CapsuleError(f"the trace {name!r} of the rank cannot be read: {error}") from error
        except CapsuleError:
            self._drop_copy()
            raise
        finally:
            os.close(folder)
        return target

    def _drop_copy(self) -> None:
        if self._copy is not None:
            shutil.rmtree(self._copy, ignore_errors=True)
            self._copy = None

    def close(self) -> None:
        self.output.close()
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _copy_files(folder: int, target: Path) -> None:
    names = sorted(os.listdir(folder))
    if len(names) > MAX_FILES:
        raise CapsuleError(f"the rank wrote {len(names)} files, but a trace has at most {MAX_FILES}")
    for gone in {path.name for path in target.iterdir()} - set(names):
        (target / gone).unlink()
    left_bytes = MAX_COPIED_BYTES
    room_bytes = shutil.disk_usage(target).free // 4 * 3  # often in memory, which others need, too
    newest = {name.partition(".")[0]: name for name in names}
    for name in names:
        descriptor = open_regular(name, folder)
        try:
            size_bytes = os.fstat(descriptor).st_size
            left_bytes -= size_bytes
            if left_bytes < 0:
                raise CapsuleError(f"the rank wrote a trace of more than {MAX_COPIED_BYTES >> 30} GiB")
            is_done = name not in newest.values() and _size_of(target / name) == size_bytes
            if not is_done:
                room_bytes -= _copy(descriptor, target / name, size_bytes, room_bytes)
        finally:
            os.close(descriptor)


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else -1


def _copy(source: int, to: Path, size_bytes: int, room_bytes: int) -> int:
    """How many bytes are not holes, which stay holes. A new file each time: an earlier copy may still be mapped."""
    to.unlink(missing_ok=True)
    written = 0
    with to.open("xb") as file:
        for start, stop in data_parts(source):
            stop = min(stop, size_bytes)
            written += max(stop - start, 0)
            if written > room_bytes:
                raise CapsuleError(f"the rank's trace does not fit into {to.parent}", hint="free some space there")
            _copy_part(source, file.fileno(), start, stop)
        file.truncate(size_bytes)
    return written


def _copy_part(source: int, to: int, start: int, stop: int) -> None:
    os.lseek(to, start, os.SEEK_SET)
    while start < stop and (done := os.sendfile(to, source, start, stop - start)):
        start += done
