"""Other programs that a rank starts with `subprocess` or `os.system`: one place that sees what each gives the rank, and
may give it something else."""

from __future__ import annotations

import functools
import inspect
import os
import posix
import shlex
import subprocess
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple, Protocol

from prismdbg.rank.program.interruptions import is_for_the_program
from prismdbg.rank.program.isolation import is_quiet
from prismdbg.rank.program.not_compiled import not_compiled

# Compilers, and a compiler that is asked where a library is: what counts of them is the files. And asyncio, which asks
# the kernel for the end of its programs.
_UNSEEN = ("/asyncio/unix_events.py", "/ctypes/util.py", "/torch/utils/cpp_extension.py")
_UNSEEN_BELOW = "/torch/_inductor/"
_FRAMES = 12  # from a start up to who asked for it
_STREAMS = frozenset(
    (
        "bufsize", "close_fds", "encoding", "errors", "pass_fds", "pipesize", "process_group", "start_new_session",
        "stderr", "stdin", "stdout", "text", "universal_newlines",
    )
)  # fmt: skip
_SHELL = ("/bin/sh", "-c")
_SHOWN = 100


class Command(NamedTuple):
    """What is started, in which folder. A shell's line stands behind `/bin/sh -c`."""

    arguments: tuple[str, ...]
    folder: str

    def __str__(self) -> str:
        words = self.arguments
        text = " ".join(words[2:]) if words[:2] == _SHELL else shlex.join(words)
        line = " ".join(text.split())
        return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


class Outcome(NamedTuple):
    """`code`: as `Popen.returncode`. `out`, `err`: what `communicate` gave, None where it gave nothing."""

    code: int
    out: Any = None
    err: Any = None


class Observer(Protocol):
    def start(self, command: Command, begin: Callable[[], None], instead: Callable[[list[str]], None]) -> Any:
        """Calls `begin`, which starts the program, or `instead`, which starts another one in its place. Returns what
        `ended` is to be given, None where it is not to be called. What it raises the rank gets."""
        ...

    def ended(self, started: Any, outcome: Outcome) -> Outcome:
        """Each time that the rank is told of its end. Returns what the rank is told."""
        ...


def install(observer: Observer) -> None:
    """Classes derived from `Popen`, and functions that use it, are seen, too."""
    popen: Any = subprocess.Popen
    popen._prismdbg, popen._prismdbg_reads = None, False
    popen.__init__ = _init(popen.__init__, observer)
    popen.communicate = _communicate(popen.communicate, observer)
    popen.wait = _waiting(popen.wait, observer)
    popen.poll = _waiting(popen.poll, observer)
    os.system = posix.system = _system(os.system, observer)  # pickle looks for it in posix


# Each of these is called until nothing of Python is left, when the names of this module are gone: then it calls the
# original at once.


def _init(original: Any, observer: Observer) -> Any:
    signature, is_ending = inspect.signature(original), sys.is_finalizing

    @not_compiled
    @functools.wraps(original)
    def init(popen: Any, *args: Any, **named: Any) -> None:
        if is_ending():
            popen._prismdbg = None
            original(popen, *args, **named)
            return
        begin = functools.partial(original, popen, *args, **named)
        given: dict[str, Any] = {}
        command = None
        try:
            given = signature.bind(popen, *args, **named).arguments
            command = _seen(given["args"], given.get("cwd"), bool(given.get("shell")))
        except Exception as error:  # arguments that Popen itself refuses
            if is_for_the_program(error):
                raise
        if command is None:
            begin()
            return

        def instead(words: list[str]) -> None:
            original(popen, words, **{name: value for name, value in given.items() if name in _STREAMS})
            popen.args = given["args"]

        popen._prismdbg = observer.start(command, begin, instead)

    return init


def _communicate(original: Any, observer: Observer) -> Any:
    is_ending = sys.is_finalizing

    @not_compiled
    @functools.wraps(original)
    def communicate(popen: Any, *args: Any, **named: Any) -> Any:
        popen._prismdbg_reads = True  # it waits itself
        try:
            given = original(popen, *args, **named)
        finally:
            popen._prismdbg_reads = False
        if popen._prismdbg is None or popen.returncode is None or is_ending():
            return given
        popen.returncode, *told = _told(observer, popen._prismdbg, Outcome(popen.returncode, *given))
        return tuple(told)

    return communicate


def _waiting(original: Any, observer: Observer) -> Any:
    is_ending = sys.is_finalizing

    @not_compiled
    @functools.wraps(original)
    def waiting(popen: Any, *args: Any, **named: Any) -> Any:
        code = original(popen, *args, **named)
        if code is None or popen._prismdbg is None or popen._prismdbg_reads or is_ending():
            return code
        popen.returncode = _told(observer, popen._prismdbg, Outcome(code)).code
        return popen.returncode

    return waiting


def _system(original: Any, observer: Observer) -> Any:
    is_ending = sys.is_finalizing

    @not_compiled
    @functools.wraps(original)
    def system(command: Any) -> int:
        if is_ending():
            return int(original(command))
        known, status = None, []
        try:
            known = _seen(command, None, True)
        except Exception as error:
            if is_for_the_program(error):
                raise
        if known is None:
            return int(original(command))
        started = observer.start(known, lambda: status.append(original(command)), lambda _: None)
        if started is None or status[0] < 0:  # no program has ended, or nobody knows how: SIGCHLD is ignored
            return int(status[0])
        code = os.waitstatus_to_exitcode(status[0])
        told = _told(observer, started, Outcome(code)).code
        return int(status[0]) if told == code else _status(told)

    return system


def _told(observer: Observer, started: Any, outcome: Outcome) -> Outcome:
    """What the program itself gave where the observer fails: the rank has no part in that."""
    try:
        return observer.ended(started, outcome)
    except Exception as error:
        if is_for_the_program(error):
            raise
        return outcome


def _status(code: int) -> int:
    """As `os.system` gives it."""
    return -code if code < 0 else code << 8


def _seen(args: Any, folder: Any, is_line: bool) -> Command | None:
    """None where it is not the program that wants to know. Raises for an iterator, which gives its words once."""
    if is_quiet() or _is_unseen(sys._getframe(2)):
        return None
    names = tuple(map(os.fsdecode, args if isinstance(args, list | tuple) else [args]))
    where = os.path.abspath(os.fsdecode(folder or "."))  # noqa: PTH100  as the recorder names paths: without `..`
    return Command((*_SHELL, *names) if is_line else names, where)


def _is_unseen(frame: FrameType | None) -> bool:
    for _ in range(_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith(_UNSEEN) or _UNSEEN_BELOW in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
