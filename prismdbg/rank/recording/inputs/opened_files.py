"""Notes what a replay must find: files the program reads, folders it writes into, programs it starts. And what not:
what it made itself. What it read and then writes to is kept as it was read.

Installed before the program's first line.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import itertools
import os
import re
import shlex
import shutil
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from prismdbg.capsule.limits import MAX_FILES_READ
from prismdbg.rank.program.interruptions import is_for_the_program
from prismdbg.rank.program.not_compiled import not_compiled
from prismdbg.rank.recording.inputs import native_readers
from prismdbg.rank.recording.inputs.child_notes import ChildNotes, after_each_batch, children
from prismdbg.rank.recording.inputs.overwritten import Overwritten, watch_torch_save

_SYSTEM = ("/proc/", "/sys/", "/dev/", "/run/")
_SHELLS = frozenset(("bash", "dash", "ksh", "sh", "zsh"))
_TORCHS_PLAN, _MOST_PLAN = "build.ninja", 1 << 20
_CCACHE = "ccache"  # has compilers' names, and starts the next one of its name in PATH
_LOOKING_FOR_LIBRARIES = f"ctypes{os.sep}util.py"  # asks a compiler where a library is
_INSTALLED = ("/bin/", "/etc/", "/lib/", "/lib32/", "/lib64/", "/sbin/", "/usr/")
_SOURCES = ("/usr/src/", "/usr/local/src/")  # where containers have their programs
_PACKAGES = ("/site-packages/", "/dist-packages/", "/lib-dynload/")
_ASSIGNMENT = re.compile(r"\w+=")
_MOST_OF_A_CALL, _LONGEST_SEARCH_S = 5000, 0.2  # files that a call is given as a folder or a pattern
_MOST_LOOKED_IN = 10_000
_FRAMES = 12  # from a start of a program up to who asked for it
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_LISTS = frozenset(("os.listdir", "os.scandir"))
_LIBRARIES = {"import": 1, "ctypes.dlopen": 0}  # native code that is loaded, and which argument names its file
_STARTS = frozenset(("os.exec", "os.posix_spawn", "os.system", "subprocess.Popen"))
_CONNECTS = "sqlite3.connect"
_EVENTS = (
    _LISTS | _STARTS | _LIBRARIES.keys() | {_CONNECTS, "open", "os.mkdir", "os.rename", "os.remove", "os.truncate"}
)


class Kind(StrEnum):
    """Of notes in the log."""

    FILE = "file"  # opened for reading
    FOLDER = "folder"  # a file in it was opened for writing
    MADE = "made"  # a file or folder that was not there before
    LISTED = "listed"  # a folder whose names were asked for
    RAN = "ran"  # a program that it started
    BUILT = "built"  # a library that it loads, which torch built for it: a replay does not build it again


_MOST = {
    Kind.FILE: MAX_FILES_READ,
    Kind.FOLDER: 2_000,
    Kind.MADE: 5_000,
    Kind.LISTED: 2_000,
    Kind.RAN: 500,
    Kind.BUILT: 2_000,
}  # a program may make one file after the other

Listener = Callable[[Kind, str, int], None]


class OpenedFiles:
    """Collects each path once, as the interpreter's audit events name it. Native code tells of nothing: what well-known
    libraries open is taken from their calls (`native_readers`), and `look` finds what is mapped or held open. Libraries
    that the program loads are files that it reads. What child processes open they tell in a file in `told_in`, which
    the rank reads after each batch of a DataLoader, at each step and at its end.

    What is installed and what lies in `own_folder`, the run's, and in `others` is left out. `listener` gets every path
    found so far when it is set, later ones as they come, with the monotonic time at which it was named.
    """

    def __init__(self, own_folder: str, *others: str, told_in: str = "") -> None:
        self._seen: dict[Kind, set[str]] = {kind: set() for kind in Kind}
        self._waiting: list[tuple[Kind, str, int]] = []
        self._passed_on = 0  # of those that wait, to the rank above
        self._listener: Listener | None = None
        self._listening = 0  # PID: a forked child has the listener, too, and writes into no log
        self._children = ChildNotes(told_in)
        self._loaded: set[str] = set()
        self._looked_in: set[str] = set()  # folders and patterns
        self._since_ns = time.time_ns()
        self._busy = threading.local()
        self._overwritten = Overwritten(own_folder)
        installed = {os.path.join(p, "lib") for p in (sys.prefix, sys.base_prefix)}
        ours = str(Path(__file__).resolve().parents[3])
        self._left_out = (*_SYSTEM, *(f"{folder}/" for folder in (*installed, ours, own_folder, *others)))

    def install(self) -> None:
        """What was opened before torch was imported is not told by anybody; modules and the script are known."""
        sys.addaudithook(self._hook())
        watch_torch_save(self.about_to_write)
        native_readers.watch(self.about_to_read)
        after_each_batch(self.hear)
        self._quietly(self._children.begin_early)
        for path in (*_script(), *_modules()):
            self._quietly(partial(self._tell_of, path))

    def _tell_of(self, path: str) -> None:
        """Raises for a relative path where the working directory was removed."""
        self._tell(Kind.FILE, os.path.abspath(path))

    def listen(self, listener: Listener) -> None:
        waiting, self._waiting, self._passed_on = self._waiting, [], 0
        self._listener, self._listening = listener, os.getpid()
        for kind, path, seen_ns in waiting:
            listener(kind, path, seen_ns)
        self._quietly(self._children.begin)

    def hear(self) -> None:
        """What children told. In any process but a rank nothing."""
        self._quietly(self._hear)

    def _hear(self) -> None:
        if self._listening != os.getpid():
            return
        for name, path, seen_ns in self._children.told():
            self._add(Kind(name), path, seen_ns)

    def end(self) -> None:
        """The program ends by itself."""
        self.look()
        self._quietly(self._children.end)

    def about_to_write(self, path: str | os.PathLike[str]) -> None:
        """For what opens its file in native code."""
        self._quietly(lambda: self._keep_if_read(os.path.abspath(os.fsdecode(path))))

    def about_to_read(self, path: str | os.PathLike[str]) -> None:
        """For what opens its file in native code, or those that lie in a folder or have names of a pattern."""

        def tell_all() -> None:
            named = os.path.abspath(os.fsdecode(path))
            if named not in self._looked_in:
                until_s = time.monotonic() + _LONGEST_SEARCH_S
                for name in itertools.islice(_files_of(named, until_s), _MOST_OF_A_CALL):
                    self._tell_of_input(name)
                    if time.monotonic() > until_s:
                        break
            if not os.path.isfile(named) and len(self._looked_in) < _MOST_LOOKED_IN:
                self._looked_in.add(named)

        self._quietly(tell_all)

    def _tell_of_input(self, path: str) -> None:
        """Not of one that was written since the program started: natively, or it would be known as made."""
        with contextlib.suppress(OSError):  # it is gone
            if path not in self._seen[Kind.FILE] and os.stat(path).st_mtime_ns <= self._since_ns:
                self._tell(Kind.FILE, path)

    def look(self) -> None:
        """Takes a few milliseconds for a process with hundreds of libraries, and for each of its children."""
        self.hear()

        def tell_all() -> None:
            for process in ("self", *map(str, children())):
                with contextlib.suppress(OSError):  # the child has ended
                    tell_of(process)

        def tell_of(process: str) -> None:
            for path in (*_mapped(process), *_held_open(process)):
                if not _is_installed(path):
                    self._tell_of_input(path)

        self._quietly(tell_all)

    def _hook(self) -> Callable[[str, tuple[Any, ...]], None]:
        """It is called until nothing of Python is left: of this module it uses only what it holds itself. What it
        raises, the program's own function raises."""
        events, lists, is_import, frame = _EVENTS, _LISTS, _is_import, sys._getframe
        is_ending, quietly, note = sys.is_finalizing, self._quietly, self._note

        @not_compiled
        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event in events and not is_ending() and not (event in lists and is_import(frame().f_back)):
                quietly(lambda: note(event, arguments))

        return hook

    def _quietly(self, action: Callable[[], None]) -> None:
        if getattr(self._busy, "on", False):
            return
        self._busy.on = True
        try:
            action()
        except Exception as error:  # one of ours would fail the program's open()
            if is_for_the_program(error):
                raise
        finally:
            self._busy.on = False

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Events are told before it is tried."""
        if event in _LIBRARIES:
            self._note_library(arguments[_LIBRARIES[event]])
            return
        if event in _STARTS:
            if not _is_library_search(sys._getframe(1)):
                names, folder, search = _started(event, arguments)
                for name in names:
                    self._note_program(name, folder, search)
            return
        named = arguments[1] if event == "os.rename" else arguments[0]
        if isinstance(named, int):  # a file that is open
            return
        path = os.path.abspath(os.fsdecode(named if named is not None else "."))
        if event in _LISTS:
            self._tell(Kind.LISTED, path)
        elif event == _CONNECTS:
            if named and named != ":memory:":
                self._note_database(os.fsdecode(named))
        elif event in ("os.remove", "os.truncate"):
            self._keep_if_read(path)
        elif event != "open":
            self._keep_if_read(path)
            self._tell_if_made(path)
        elif isinstance(flags := arguments[2], int) and flags & _WRITES:
            self._tell(Kind.FOLDER, os.path.dirname(path))
            if flags & os.O_CREAT:
                self._tell_if_made(path)
            if flags & os.O_RDWR and not flags & os.O_TRUNC and path not in self._seen[Kind.MADE]:
                self._tell(Kind.FILE, path)
            self._keep_if_read(path)
        else:
            self._tell(Kind.FILE, _source_of(path))

    def _note_database(self, named: str) -> None:
        """It may be written to, natively; what is not yet in it is in a journal beside it."""
        uri = urllib.parse.urlsplit(named)
        path = os.path.abspath(urllib.parse.unquote(uri.path) if uri.scheme == "file" else named)
        if not os.path.exists(path):
            self._tell(Kind.FOLDER, os.path.dirname(path))
            self._tell_if_made(path)
        for file in (path, f"{path}-journal", f"{path}-wal"):
            if file not in self._seen[Kind.MADE] and os.path.exists(file):
                self._tell(Kind.FILE, file)
                self._overwritten.keep(file)

    def _note_library(self, named: str | bytes | None) -> None:
        """A module of Python's has no file in the event; a library that is named without a folder is the system's."""
        if not named or "/" not in (name := os.fsdecode(named)):
            return
        path = os.path.abspath(name)
        if _is_installed(path) or path in self._loaded:
            return
        self._loaded.add(path)
        self._tell(Kind.FILE, path)
        if _is_torchs(path):
            self._tell(Kind.BUILT, path)

    def _note_program(self, name: str, folder: str, search: str) -> None:
        """`name` as it is started in `folder`; `search`: its PATH."""
        is_named = "/" in name
        found = [os.path.abspath(os.path.join(folder, name))] if is_named else []
        places = search.split(os.pathsep) if not is_named or _is_ccache(found[0]) else []
        for place in places:
            if (path := shutil.which(os.path.basename(name), path=place)) is not None:
                found.append(os.path.abspath(path))
                if not _is_ccache(path):
                    break
        for path in found:
            self._tell(Kind.RAN, path)

    def _keep_if_read(self, path: str) -> None:
        if path in self._seen[Kind.FILE] and path not in self._seen[Kind.MADE]:
            self._overwritten.keep(path)

    def _tell_if_made(self, path: str) -> None:
        if path.startswith(self._left_out) or path in self._seen[Kind.MADE]:
            return
        if not os.path.lexists(path):
            self._tell(Kind.MADE, path)

    def _tell(self, kind: Kind, path: str) -> None:
        seen = self._seen[kind]
        if path in seen or path.startswith(self._left_out) or len(seen) >= _MOST[kind]:
            return
        if kind is Kind.FILE and not os.path.isfile(path):
            return
        self._add(kind, path, time.monotonic_ns())

    def _add(self, kind: Kind, path: str, seen_ns: int) -> None:
        seen = self._seen[kind]
        if path in seen or len(seen) >= _MOST[kind]:
            return
        seen.add(path)
        if self._listener is not None and self._listening == os.getpid():
            self._listener(kind, path, seen_ns)
            return
        self._waiting.append((kind, path, seen_ns))  # also in a child: it may become a rank, as that of a launcher
        if self._children.tell(self._waiting[self._passed_on :]):
            self._passed_on = len(self._waiting)


def _files_of(named: str, until_s: float) -> Iterator[str]:
    """Of a pattern for any depth all below its first folder. Follows no links to folders."""
    fixed, is_deep, _ = named.partition("**")
    if is_deep:
        named = os.path.dirname(fixed)
    is_pattern = glob.has_magic(named) and not os.path.lexists(named)
    for path in _matches("/", named.split("/")[1:], until_s) if is_pattern else (named,):
        if not os.path.isdir(path):
            yield path
            continue
        for folder, _, names in os.walk(path):
            if time.monotonic() > until_s:
                return
            yield from (os.path.join(folder, name) for name in names)


def _matches(folder: str, parts: list[str], until_s: float) -> Iterator[str]:
    """As `glob.iglob`, which looks for as long as it takes: a pattern may name each of thousands of folders."""
    part, *rest = parts
    if not glob.has_magic(part):
        path = os.path.join(folder, part)
        if rest:
            yield from _matches(path, rest, until_s)
        elif os.path.lexists(path):
            yield path
        return
    is_wanted = re.compile(fnmatch.translate(part)).match
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if time.monotonic() > until_s:
                return
            if not is_wanted(entry.name) or (entry.name.startswith(".") and not part.startswith(".")):
                continue
            if not rest:
                yield entry.path
            elif entry.is_dir():
                yield from _matches(entry.path, rest, until_s)


def _started(event: str, arguments: tuple[Any, ...]) -> tuple[list[str], str, str]:
    """What is started, in which folder, and its PATH; of a shell's line also the first program."""
    usual = os.environ.get("PATH", os.defpath)
    if event == "os.system":
        return _programs(shlex.split(os.fsdecode(arguments[0]))), "", usual
    name = os.fsdecode(arguments[0])
    if event != "subprocess.Popen":
        return [name], "", usual
    _, words, folder, env = arguments
    given = list(map(os.fsdecode, words))
    names = _programs([name, *given[1:]])
    if os.path.basename(name) in _SHELLS and len(given) > 2 and given[1] == "-c":
        names += _programs(shlex.split(given[2]))
    path = usual if env is None else env.get("PATH", env.get(b"PATH", os.defpath))
    return names, "" if folder is None else os.fsdecode(folder), os.fsdecode(path)


def _programs(words: list[str]) -> list[str]:
    """The first word that is no variable's; behind ccache the compiler, too."""
    rest = list(itertools.dropwhile(_ASSIGNMENT.match, words))
    return rest[: 2 if rest and os.path.basename(rest[0]) == _CCACHE else 1]


def _is_ccache(path: str) -> bool:
    return os.path.basename(os.path.realpath(path)) == _CCACHE


def _is_torchs(library: str) -> bool:
    """Whether its plan is there: `torch.utils.cpp_extension` writes one beside each library that it builds."""
    folder, name = os.path.split(library)
    try:
        with open(os.path.join(folder, _TORCHS_PLAN), encoding="utf-8", errors="replace") as plan:
            return f"build {name}: link" in plan.read(_MOST_PLAN)
    except OSError:
        return False


def _is_library_search(frame: FrameType | None) -> bool:
    """Which asks whatever compiler there is; the program compiles nothing."""
    for _ in range(_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith(_LOOKING_FOR_LIBRARIES):
            return True
        frame = frame.f_back
    return False


def _is_installed(path: str) -> bool:
    is_system = path.startswith(_INSTALLED) and not path.startswith(_SOURCES)
    return is_system or any(part in path for part in _PACKAGES)


def _is_import(frame: FrameType | None) -> bool:
    """Python lists each folder that it looks for modules in."""
    return frame is not None and frame.f_code.co_filename.startswith("<frozen importlib")


def _mapped(process: str) -> list[str]:
    """Data that nobody writes to through its mapping; libraries have an executable part."""
    modes: dict[str, str] = {}
    with open(f"/proc/{process}/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith("/"):
                modes[fields[5]] = modes.get(fields[5], "") + fields[1]
    return [path for path, mode in modes.items() if "x" not in mode and not ("w" in mode and "s" in mode)]


def _held_open(process: str) -> list[str]:
    """Files that are open for reading alone; not standard input, which a replay has none of."""
    found = []
    for number in os.listdir(f"/proc/{process}/fd"):
        try:
            path = os.readlink(f"/proc/{process}/fd/{number}")
            if (
                number != "0"
                and path.startswith("/")
                and not path.startswith(_SYSTEM)
                and _is_read_only(process, number)
            ):
                found.append(path)
        except OSError:  # closed since
            continue
    return found


def _is_read_only(process: str, number: str) -> bool:
    with open(f"/proc/{process}/fdinfo/{number}") as lines:
        flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "1")
    return int(flags, 8) & os.O_ACCMODE == os.O_RDONLY


def _script() -> list[str]:
    """A launcher may stand before the program's own script, which then calls itself the program."""
    return [word for word in sys.orig_argv[1:] if word.endswith(".py")][:1]


def _modules() -> list[str]:
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [path for path in files if isinstance(path, str)]


def _source_of(path: str) -> str:
    """A module's source for its cached byte code: a replay compiles it again."""
    folder, name = os.path.split(path)
    if name.endswith(".pyc") and os.path.basename(folder) == "__pycache__":
        return os.path.join(os.path.dirname(folder), name.split(".")[0] + ".py")
    return path
