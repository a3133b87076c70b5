"""What a process has on its NVIDIA GPUs: moved into its own memory, where a checkpoint finds it, and back. Standard
library only.

NVIDIA's driver does both from outside, for a process that this one may trace (CUDA driver API, "Checkpointing": driver
570 or newer). In between the process runs on, has no GPU, and what it calls of CUDA waits.

Also a program, for a rank of a job: `python -I -S gpu_state.py hold BOUND_MS HOLD_MS PID...` moves the states, says so
in one JSON line, waits for the end of its standard input, for HOLD_MS at most, and moves them back, whatever became of
who started it. `return` in place of `hold` only moves back.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

sys.path.append(str(Path(__file__).resolve().parent))  # -I leaves it out

from syscalls import (
    CLONE_NEWNS,
    MNT_DETACH,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    PlaceError,
    check,
    libc,
    mount,
)

LIBRARY, DEVICES = "libcuda.so", "/dev/nvidia"
DRIVER_LIBRARY = f"{LIBRARY}.1"
RUNNING, LOCKED, CHECKPOINTED = 0, 1, 2  # CUprocessState
REAP_S = 5.0
MOVE_BOUND_S = 120.0  # of the starter, to memory or back: however long an image may be written


class GpuError(Exception):
    """The driver refused, with its own words, or there is none. `is_stuck`: a process may still wait for its state."""

    def __init__(self, text: str, *, is_stuck: bool = False) -> None:
        super().__init__(text)
        self.is_stuck = is_stuck


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
            except GpuError as error:
                try:
                    self._call("Unlock", pid, None)
                except GpuError as second:
                    raise GpuError(f"{error}; {second}", is_stuck=True) from error
                raise
        elif state != CHECKPOINTED:
            raise GpuError(f"process {pid} is in state {state} of CUDA's")

    def resume(self, pid: int, *, is_held: bool = True) -> None:
        """The process goes on where it stood, with its state on the GPU. Of one that has ended nothing is left.
        is_held: it has a state."""
        state = self.state(pid)
        if state == CHECKPOINTED:
            self._call("Restore", pid, None)
        if state in (LOCKED, CHECKPOINTED):
            self._call("Unlock", pid, None)
        elif state not in (RUNNING, None) or (state is None and is_held and _lives(pid)):
            raise GpuError(f"process {pid} is in state {state} of CUDA's", is_stuck=True)

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
        return LIBRARY.encode() in Path(f"/proc/{pid}/maps").read_bytes()
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
    """Those with a state on a GPU, or one that somebody left in their memory. `GpuError` where one has a GPU open
    that its parent opened: no driver moves that, and nothing can save it."""
    found = []
    for pid in filter(has_loaded, pids):
        state, is_open = driver.state(pid), has_gpu_open(pid)
        if state is None and is_open:
            raise GpuError(
                f"process {pid} has a GPU open but no state there: its parent opened it before the fork, as for a "
                "DataLoader's worker"
            )
        if is_open or state in (LOCKED, CHECKPOINTED):
            found.append(pid)
    return found


def suspend_all(driver: Driver, pids: Iterable[int], bound_ms: int) -> None:
    """All or none. The bound is that of all together, as far as the driver heeds it."""
    done: list[int] = []
    deadline = time.monotonic() + bound_ms / 1000
    try:
        for pid in pids:
            driver.suspend(pid, max(int((deadline - time.monotonic()) * 1000), 1))
            done.append(pid)
    except GpuError as error:
        try:
            resume_all(driver, done)
        except GpuError as second:
            raise GpuError(f"{error}; {second}", is_stuck=True) from error
        raise


def resume_all(driver: Driver, pids: Iterable[int], *, are_held: bool = True) -> None:
    """Tried with each, whatever becomes of the others."""
    failed: list[GpuError] = []
    for pid in pids:
        try:
            driver.resume(pid, is_held=are_held)
        except GpuError as error:
            failed.append(error)
    if failed:
        raise GpuError(str(failed[0]), is_stuck=True)


class Gpus:
    """The rank's, for the starter. Make it before the view is confined, in a mount namespace of one's own.

    The library talks with the rank's processes, which may be anybody's: each use is in a process of its own, bounded,
    and what the library opens or starts there is this machine's, not what the rank has put in its place.
    """

    def __init__(self, *, has_devices: bool) -> None:
        self._why_not = ""
        self._driver: Driver | None = None
        self._view: int | None = None
        if has_devices and Path(f"{DEVICES}ctl").exists():
            try:
                driver, self._view = Driver(), kept_view()
                self._driver = driver  # not without the view
            except (GpuError, PlaceError) as error:
                self._why_not = str(error)

    def suspend(self, pids: Iterable[int], bound_s: float) -> list[int]:
        """The processes whose state was moved into their memory."""
        bound_s = min(bound_s, MOVE_BOUND_S)
        using = [pid for pid in pids if has_loaded(pid) and has_gpu_open(pid)]
        if using:
            driver = self._required()

            def move() -> None:
                suspend_all(driver, users_of_gpus(driver, using), int(bound_s * 1000))

            try:
                in_child(move, bound_s + 5.0, self._view)
            except GpuError:
                with contextlib.suppress(GpuError):  # the first one says more
                    self.resume(using, bound_s)
                raise
        return using

    def resume(self, pids: Iterable[int], bound_s: float) -> None:
        if those := list(pids):
            driver = self._required()
            in_child(lambda: resume_all(driver, those), min(bound_s, MOVE_BOUND_S), self._view)

    def require(self, pids: Iterable[int]) -> None:
        """`GpuError` where the state of these cannot be given back, before they run without it and end of that."""
        if any(True for _ in pids):
            self._required()

    def _required(self) -> Driver:
        if self._driver is None:
            raise GpuError(self._why_not or "the replay has no GPU")
        return self._driver


def kept_view() -> int:
    """A mount namespace like this process's, with the processes of its PID namespace in /proc. What this process mounts
    from here on is not in it."""
    check(libc.unshare(CLONE_NEWNS), "copy the mount namespace")
    check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "keep mounts private")
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
    view = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    check(libc.unshare(CLONE_NEWNS), "copy the mount namespace")
    check(libc.umount2(b"/proc", MNT_DETACH), "unmount /proc")
    return view


def in_child(action: Callable[[], None], bound_s: float, view: int | None = None) -> None:
    """`GpuError` with what the action raised, or where it did not end in time: then it is killed. `view`: the mount
    namespace that it is in."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        _act(action, tell, view)
    os.close(tell)
    try:
        said = _all_of(told, time.monotonic() + bound_s)
    finally:
        os.close(told)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # it has said all, or nothing in time
        _reap(child)
    if said is None:
        raise GpuError(f"NVIDIA's driver did not answer within {bound_s:g} s")
    if said != b"done":
        raise GpuError(said.decode(errors="replace") or "NVIDIA's driver library crashed")


def _reap(child: int) -> None:
    """One that the kernel does not let go is left to who reaps all."""
    deadline = time.monotonic() + REAP_S
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(child, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.005)


def _act(action: Callable[[], None], tell: int, view: int | None) -> NoReturn:
    try:
        if view is not None:
            check(libc.setns(view, CLONE_NEWNS), "enter the mount namespace of this machine")
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


def main(verb: str, bound_ms: str, hold_ms: str, *words: str) -> int:
    """As the module says. Ends with 1 where it could not be done, which its last line says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends when what it holds is given back
    pids = [int(word) for word in words]
    try:
        alone = os.open(f"/proc/{pids[0]}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return said(error=f"process {pids[0]} has ended")
    if not locked(alone, int(bound_ms)):
        return said(error=f"another process still moves the state of process {pids[0]}")
    driver: Driver | None = None
    held: list[int] = []
    try:
        try:
            driver = Driver()
        except GpuError:
            if any(map(has_gpu_open, pids)):
                raise
        if driver is not None:
            held = users_of_gpus(driver, pids) if verb == "hold" else [*filter(has_loaded, pids)]
        if verb == "hold":
            if driver is not None:
                suspend_all(driver, held, int(bound_ms))
            with contextlib.suppress(BrokenPipeError):  # nobody is there to hear it
                said(held=held)
                if not input_ended(int(hold_ms)):
                    said(returning=held)  # before it happens: who asked may go on in between
    except GpuError as error:
        return said(error=str(error), stuck=error.is_stuck)
    except BaseException as error:
        return said(error=type(error).__name__, stuck=not given_back(driver, held))
    try:
        if driver is not None:
            resume_all(driver, held, are_held=verb == "hold")
    except GpuError as error:
        return said(error=str(error), stuck=True)
    with contextlib.suppress(BrokenPipeError):
        said(returned=held)
    return 0


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2][0] not in "ZX"
    except (OSError, IndexError):
        return False


def said(**facts: object) -> int:
    os.write(1, json.dumps(facts).encode() + b"\n")
    return 1


def given_back(driver: Driver | None, held: list[int]) -> bool:
    try:
        if driver is not None:
            resume_all(driver, held)
    except GpuError:
        return False
    return True


def locked(folder: int, bound_ms: int) -> bool:
    """Alone with a process, until this one ends."""
    deadline = time.monotonic() + bound_ms / 1000
    while time.monotonic() < deadline:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return True
    return False


def input_ended(bound_ms: int) -> bool:
    """False at the end of the bound: who started this may be stopped."""
    deadline = time.monotonic() + bound_ms / 1000
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    while (left := deadline - time.monotonic()) > 0:
        if poll.poll(left * 1000) and not os.read(0, 4096):
            return True
    return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
