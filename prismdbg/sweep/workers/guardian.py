"""The parent of a process that runs a configuration. It ends all that the configuration started, whatever has become of
their own parents, and the folder of the configuration is held until then."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import sys
import time
from math import inf
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread

import psutil

from prismdbg.errors import UsageError

TO_END_S = 60.0  # of what is told to end, until it is killed: a launcher gives its ranks half of that
_KILLED_S = 10.0  # of what outlives its job, or SIGKILL
POLL_S = 0.1
_AWAITED = frozenset((signal.SIGTERM, signal.SIGCHLD))
# A terminal sends the others to all processes of the sweep: the guardian stays, and ends with the sweep.
_BLOCKED = _AWAITED | {signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36


def longest_end_s(to_end_s: float = TO_END_S) -> float:
    """From when it is told to end until nothing is left of it."""
    return to_end_s + 3 * _KILLED_S


def hold(folder: Path, bound_s: float) -> int:
    """A descriptor, by which this process and those that it forks hold the folder of a configuration. `UsageError`
    where others hold it for longer than `bound_s`."""
    end_s = time.monotonic() + bound_s
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > end_s:
                os.close(descriptor)
                raise UsageError(
                    f"{folder.name} still runs for an earlier start of this sweep", hint="end its processes first"
                ) from None
            time.sleep(POLL_S)


def fork_guarded(to_end_s: float) -> None:
    """Returns in a new process, which SIGTERM ends if this one is gone. This one waits for it and ends with its exit
    code; told to end by SIGTERM or the end of its own parent, it ends all that was started."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    _prctl(_SET_CHILD_SUBREAPER, 1)
    if worker := os.fork():
        sys.exit(_Guardian(worker, to_end_s).wait())
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)


class _Guardian:
    """`_kills_s`: when what is left is killed; never as long as nothing is to end."""

    def __init__(self, worker: int, to_end_s: float) -> None:
        self._worker = worker
        self._to_end_s = to_end_s
        self._code: int | None = None
        self._kills_s = inf
        self._asked: set[psutil.Process] = set()

    def wait(self) -> int:
        """The worker's exit code."""
        Thread(target=_end_with_parent, daemon=True).start()
        while self._code is None or (self._is_told and self._left()):
            got = signal.sigtimedwait(_AWAITED, POLL_S if self._is_told else 3600)
            if got is not None and got.si_signo == signal.SIGTERM:
                self._tell()
            self._reap()
            if self._is_told and not self._end_left():
                break
        return 128 + signal.SIGKILL if self._code is None else self._code

    @property
    def _is_told(self) -> bool:
        return self._kills_s < inf

    def _tell(self) -> None:
        self._kills_s = min(self._kills_s, time.monotonic() + self._to_end_s)
        if self._code is None:
            os.kill(self._worker, signal.SIGTERM)

    def _reap(self) -> None:
        """Also those whose parents have ended. A worker that was killed leaves a job that nobody looks after."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._worker:
                    code = os.waitstatus_to_exitcode(ended[1])
                    self._code = code if code >= 0 else 128 - code
                    if code < 0:
                        self._tell()

    def _left(self, *, of_all: bool = False) -> list[psutil.Process]:
        """Without the worker. of_all: not only those whose parents have ended."""
        return [each for each in psutil.Process().children(recursive=of_all) if each.pid != self._worker]

    def _end_left(self) -> bool:
        """The worker goes last: it finishes its run when the job is gone. False where even SIGKILL ends nothing."""
        late_s = time.monotonic() - self._kills_s
        if late_s < 0:
            for each in {*self._left()} - self._asked:
                self._asked.add(each)
                _send(each, signal.SIGTERM)
            return True
        for each in self._left(of_all=True):
            _send(each, signal.SIGKILL)
        if late_s > _KILLED_S and self._code is None:
            os.kill(self._worker, signal.SIGKILL)
        return late_s < 2 * _KILLED_S


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):  # it has ended, or is another user's
        process.send_signal(number)


def has_parent_ended(bound_s: float | None) -> bool:
    """After `bound_s`, or before; None: whenever it ends."""
    parent = parent_process()
    assert parent is not None
    return bool(wait([parent.sentinel], bound_s))


def _end_with_parent() -> None:
    has_parent_ended(None)
    os.kill(os.getpid(), signal.SIGTERM)


def _prctl(what: int, value: int) -> None:
    ctypes.CDLL(None).prctl(what, value)
