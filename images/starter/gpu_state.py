"""What a process has on its NVIDIA GPUs: moved into its own memory, where a checkpoint finds it, and back. Standard
library only.

NVIDIA's driver does both from outside, for a process that this one may trace (CUDA driver API, "Checkpointing": driver
570 or newer). In between the process runs on, has no GPU, and what it calls of CUDA waits.

Also a program, for a rank of a job: `python -I -S gpu_state.py hold BOUND_MS PID...` moves the states, says so in one
JSON line, waits for the end of its standard input, and moves them back, whatever became of who started it. `return`
in place of `hold` only moves back.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

LIBRARY, DEVICES = "libcuda.so", "/dev/nvidia"
DRIVER_LIBRARY = f"{LIBRARY}.1"
RUNNING, LOCKED, CHECKPOINTED = 0, 1, 2  # CUprocessState


class GpuError(Exception):
    """The driver refused, with its own words, or there is none."""


class LockArgs(ctypes.Structure):
    """CUcheckpointLockArgs."""

    _fields_ = (("timeout_ms", ctypes.c_uint), ("reserved0", ctypes.c_uint), ("reserved1", ctypes.c_uint64 * 7))


class Driver:
    """NVIDIA's driver. It is not initialized: this process gets no state on a GPU itself."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL(DRIVER_LIBRARY)
        except OSError as error:
            raise GpuError(f"NVIDIA's driver library cannot be loaded: {error}") from error
        if not hasattr(self._cuda, "cuCheckpointProcessLock"):
            raise GpuError("NVIDIA's driver is older than 570, which is the first that can save a process")

    def state(self, pid: int) -> int | None:
        """None of a process that has never used CUDA."""
        state = ctypes.c_int(-1)
        return state.value if self._code("GetState", pid, ctypes.byref(state)) == 0 else None

    def suspend(self, pid: int, bound_ms: int) -> None:
        """Waits for what the process has issued. It is left as it was where that fails. A process that somebody left
        half-way is taken on from there."""
        state = self.state(pid)
        if state == RUNNING:
            self._call("Lock", pid, ctypes.byref(LockArgs(timeout_ms=bound_ms)))
        if state in (RUNNING, LOCKED):
            try:
                self._call("Checkpoint", pid, None)
            except GpuError:
                self._call("Unlock", pid, None)
                raise
        elif state != CHECKPOINTED:
            raise GpuError(f"process {pid} is in state {state} of CUDA's")

    def resume(self, pid: int) -> None:
        """The process goes on where it stood, with its state on the GPU. Of one that has ended nothing is left."""
        state = self.state(pid)
        if state == CHECKPOINTED:
            self._call("Restore", pid, None)
        if state in (LOCKED, CHECKPOINTED):
            self._call("Unlock", pid, None)
        elif state != RUNNING and _lives(pid):
            raise GpuError(f"process {pid} is in state {state} of CUDA's")

    def _call(self, what: str, pid: int, argument: Any) -> None:
        if (code := self._code(what, pid, argument)) != 0:
            name = ctypes.c_char_p()
            self._cuda.cuGetErrorName(code, ctypes.byref(name))
            said = (name.value or b"an unknown error").decode()
            raise GpuError(f"cuCheckpointProcess{what} of process {pid}: {said} ({code})")

    def _code(self, what: str, pid: int, argument: Any) -> int:
        return int(getattr(self._cuda, f"cuCheckpointProcess{what}")(ctypes.c_int(pid), argument))


def has_loaded(pid: int) -> bool:
    """Whether the process has NVIDIA's driver library, without which it uses no GPU."""
    try:
        return LIBRARY in Path(f"/proc/{pid}/maps").read_text()
    except OSError:  # it has ended, or is another user's
        return False


def has_gpu_open(pid: int) -> bool:
    """Not while its state is in its memory."""
    return any(name.startswith(DEVICES) for name in open_names(pid))


def open_names(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(str(entry.readlink()))
    return found


def users_of_gpus(driver: Driver, pids: Iterable[int]) -> list[int]:
    """Those with a state on a GPU, or one that somebody left in their memory."""
    loaded = [pid for pid in pids if has_loaded(pid)]
    return [pid for pid in loaded if has_gpu_open(pid) or driver.state(pid) in (LOCKED, CHECKPOINTED)]


def suspend_all(driver: Driver, pids: Iterable[int], bound_ms: int) -> None:
    """All or none."""
    done: list[int] = []
    try:
        for pid in pids:
            driver.suspend(pid, bound_ms)
            done.append(pid)
    except GpuError:
        resume_all(driver, done)
        raise


def resume_all(driver: Driver, pids: Iterable[int]) -> None:
    """Tried with each, whatever becomes of the others."""
    failed: list[GpuError] = []
    for pid in pids:
        try:
            driver.resume(pid)
        except GpuError as error:
            failed.append(error)
    if failed:
        raise failed[0]


class Gpus:
    """The rank's, for the starter. Make it before the view is confined.

    The library talks with the rank's processes, which may be anybody's: each use is in a process of its own, bounded.
    """

    def __init__(self) -> None:
        self._why_not = ""
        self._driver: Driver | None = None
        try:
            self._driver = Driver() if Path(f"{DEVICES}ctl").exists() else None
        except GpuError as error:
            self._why_not = str(error)

    def suspend(self, pids: Iterable[int], bound_s: float) -> list[int]:
        """The processes whose state was moved into their memory."""
        using = [pid for pid in pids if has_loaded(pid) and has_gpu_open(pid)]
        if using:
            driver = self._required()
            try:
                in_child(lambda: suspend_all(driver, using, int(bound_s * 1000)), bound_s + 5.0)
            except GpuError:
                with contextlib.suppress(GpuError):  # the first one says more
                    self.resume(using, bound_s)
                raise
        return using

    def resume(self, pids: Iterable[int], bound_s: float) -> None:
        if those := list(pids):
            driver = self._required()
            in_child(lambda: resume_all(driver, those), bound_s)

    def _required(self) -> Driver:
        if self._driver is None:
            raise GpuError(self._why_not or "the replay has no GPU")
        return self._driver


def in_child(action: Callable[[], None], bound_s: float) -> None:
    """`GpuError` with what the action raised, or where it did not end in time: then it is killed."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        _act(action, tell)
    os.close(tell)
    try:
        said = _all_of(told, time.monotonic() + bound_s)
    finally:
        os.close(told)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # it has said all, or nothing in time
        os.waitpid(child, 0)
    if said is None:
        raise GpuError(f"NVIDIA's driver did not answer within {bound_s:g} s")
    if said != b"done":
        raise GpuError(said.decode(errors="replace") or "NVIDIA's driver library crashed")


def _act(action: Callable[[], None], tell: int) -> NoReturn:
    try:
        action()
        os.write(tell, b"done")
    except BaseException as error:
        os.write(tell, str(error).encode()[:4000] or type(error).__name__.encode())
    finally:
        os._exit(0)


def _all_of(told: int, deadline: float) -> bytes | None:
    poll, said = select.poll(), b""
    poll.register(told, select.POLLIN | select.POLLHUP)
    while (left := deadline - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            if not (part := os.read(told, 4096)):
                return said
            said += part
    return None


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (OSError, IndexError):
        return False


def main(verb: str, bound_ms: str, *words: str) -> int:
    """As the module says. Ends with 1 where the states could not be moved back."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends when what it holds is given back
    held: list[int] = []
    try:
        driver = Driver()
        held = users_of_gpus(driver, map(int, words))
        if verb == "hold":
            suspend_all(driver, held, int(bound_ms))
            print(json.dumps({"held": held}), flush=True)
            while os.read(0, 4096):
                pass
        resume_all(driver, held)
    except BrokenPipeError:  # nobody is there to hear that they are held
        resume_all(driver, held)
        return 1
    except GpuError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    print(json.dumps({"returned": held}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
