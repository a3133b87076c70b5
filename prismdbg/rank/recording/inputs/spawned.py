"""What multiprocessing gives a process that it spawns: two pickles in a pipe, one with the state of the interpreter
(paths, arguments, the main module), one with the function and its arguments. They are kept while multiprocessing reads
them: if the process turns out to be a rank, a replay from the program's start needs them.

Standard library only, for it is needed before torch is there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prismdbg.capsule.spawned import FILE, MOST_BYTES
from prismdbg.model.private_file import private
from prismdbg.model.sizes import size

Load = Callable[[Any], Any]

# What only the process has that started the rank, by a text in its pickle: a module, a function or a class. A replay
# has stand-ins for queues, locks, events, barriers and connections (`rank/replay/stand_ins.py`), but a worker of a
# DataLoader or of a pool does nothing without them; what it has may be large.
_OF_THE_PARENT = {
    "_worker_loop": "the queues of a DataLoader",
    "multiprocessing.pool": "the queues of a pool",
    "concurrent.futures.process": "the queues of a pool",
    "multiprocessing.managers": "an object of a manager",
    "multiprocessing.shared_memory": "shared memory",
    "multiprocessing.sharedctypes": "a shared value",
    "rebuild_storage_fd": "a tensor in shared memory",
    "rebuild_storage_filename": "a tensor in shared memory",
    "rebuild_cuda_tensor": "a tensor of a GPU",
    "rebuild_event": "an event of a GPU",
    "_rebuild_socket": "a socket",
}
_DESCRIPTOR = "_DupFd"  # an open file, unless it is that of one of these
_HAVE_DESCRIPTORS = ("rebuild_connection", "rebuild_arena")
# In protocol 4 and newer, a text of fewer than 256 bytes has this code and its length in front.
_TEXT = b"\x8c"


def _pickled(text: str) -> bytes:
    return _TEXT + bytes((len(text),)) + text.encode()


_LENT = re.compile(b"|".join(re.escape(_pickled(text)) for text in _OF_THE_PARENT))


class Given:
    """The pickles of this process, as far as they are read."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._lack = ""
        self._key = b""
        self._pid = os.getpid()

    def load(self, unpickle: Load, file: Any) -> Any:
        loaded = unpickle(_Copied(file, self._keep))
        if isinstance(loaded, dict):  # the first one; the function's process has the same key
            self._key = bytes(loaded.get("authkey", b""))
        if lent := self._lent():
            self._give_up(f"{lent} among its arguments")
        return loaded

    def write(self, folder: Path) -> dict[str, str]:
        """Writes the pickles into the rank's folder, once, and returns what rank.json says of them."""
        data, self._data = bytes(self._data), bytearray()
        if os.getpid() != self._pid:  # a forked child runs something else
            return {}
        if data:
            try:
                _write_whole(folder / FILE, _without(data, self._key))
            except OSError as error:
                self._lack = f"arguments that could not be written ({error.strerror})"
        return {"withheld": self._lack} if self._lack else {}

    def _lent(self) -> str:
        """What is in the pickles that no replay can have; empty where there is nothing of the kind."""
        if found := _LENT.search(self._data):
            return _OF_THE_PARENT[found[0][2:].decode()]
        is_file = _pickled(_DESCRIPTOR) in self._data
        return "an open file" if is_file and not any(_pickled(text) in self._data for text in _HAVE_DESCRIPTORS) else ""

    def _keep(self, data: bytes | memoryview) -> None:
        """Copies nothing that is too large: the process needs its arguments in memory once."""
        if self._lack:
            return
        if len(self._data) + len(data) > MOST_BYTES:
            self._give_up(f"arguments of more than {size(MOST_BYTES)}")
        else:
            self._data += data

    def _give_up(self, lack: str) -> None:
        self._lack = lack
        self._data.clear()


class _Copied:
    """A file that tells what is read from it. It has no `peek`, so nothing is read ahead."""

    def __init__(self, file: Any, tell: Callable[[bytes | memoryview], None]) -> None:
        self._file = file
        self._tell = tell

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        self._tell(data)
        return data

    def readline(self) -> bytes:
        data: bytes = self._file.readline()
        self._tell(data)
        return data

    def readinto(self, buffer: memoryview) -> int:
        """By which pickle reads a large value into its place. Without it, the value is in memory twice."""
        count: int = self._file.readinto(buffer)
        self._tell(buffer[:count])
        return count


def _write_whole(path: Path, data: bytes) -> None:
    """Writes a new file. Where that fails, there is none: a part of the pickles starts no process."""
    with open(path, "xb", opener=private) as out:
        try:
            out.write(data)
            out.flush()
        except OSError:
            path.unlink()
            raise


def _without(data: bytes, key: bytes) -> bytes:
    """The pickles with zeros for the key by which processes of the job know each other: it is a secret."""
    if not key:
        return data
    code = b"C" + bytes((len(key),)) if len(key) < 256 else b""  # a short key may stand elsewhere by chance
    return data.replace(code + key, code + bytes(len(key)))


_given: Given | None = None


def install() -> None:
    """Called before the program's first line, in a process that multiprocessing spawned."""
    global _given
    _given = Given()
    load_with(_given.load)


def load_with(load: Callable[[Load, Any], Any]) -> None:
    """Has multiprocessing read what this process is given with `load`, which gets what unpickles, and the file."""
    from multiprocessing import reduction, spawn

    pickles: Any = vars(reduction)["pickle"]
    ours = SimpleNamespace(**{**vars(pickles), "load": partial(load, pickles.load)})
    vars(spawn)["reduction"] = SimpleNamespace(**{**vars(reduction), "pickle": ours})


def write(folder: Path) -> dict[str, str]:
    """As `Given.write`; nothing in a process that was not spawned."""
    return _given.write(folder) if _given is not None else {}
