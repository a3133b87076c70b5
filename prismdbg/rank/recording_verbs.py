"""What an agent offers while the rank trains: status, park and release, window, state hash, detach; and, in a
restored process only, the change over to virtual peers."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismdbg.errors import FacilityError, UsageError
from prismdbg.protocol.wire import Message
from prismdbg.rank.agent import Agent, Verb
from prismdbg.rank.debug.threads import all_stacks
from prismdbg.rank.recording.log_bound import LogBound, watched
from prismdbg.rank.recording.own_process import OwnProcess
from prismdbg.rank.recording.recorded_rank import Recording
from prismdbg.rank.tracing import tracer
from prismdbg.settings.own_thread import start_own_thread

WATCH_S = 0.25
LONGEST_LEASE_S = 300.0  # whatever a client asks for
MOST_OF_A_NUMBER = 1 << 62
MOST_OF_A_TOKEN = 100
MOST_HASHES = 1000
BUSY_HINT = "try again when the other capture of this rank is done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The client for whom a rank is parked or payloads are kept. `token`: of one capture; a client may make several."""

    pid: int
    ticks: int
    token: str

    @classmethod
    def of(cls, message: Message) -> Holder | None:
        """None where the request names nobody."""
        if "holder" not in message:
            return None
        pid, ticks = message["holder"], message.get("holder_ticks")
        if type(pid) is not int or type(ticks) is not int:
            raise UsageError(
                "a holder is a process: `holder` and `holder_ticks` are whole numbers",
                hint="send the client's PID and its start time",
            )
        return cls(pid=pid, ticks=ticks, token=str(message.get("token", ""))[:MOST_OF_A_TOKEN])

    @property
    def is_gone(self) -> bool:
        """Opens no file: a checkpoint may be taken meanwhile, and must not find a descriptor of another process.

        A dead process that nobody has waited for has no program any more. /proc may hide those of other users, as
        root's (`hidepid`): a signal is refused to them, and says so.
        """
        try:
            Path(f"/proc/{self.pid}/exe").readlink()
        except (FileNotFoundError, ProcessLookupError):
            return not _is_of_another_user(self.pid)
        except OSError:  # another user's
            return False
        return False


def _is_of_another_user(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return False


class Park:
    """Holds the rank at the entry of its next collective, under a lease: a client that dies cannot hold the job.

    It belongs to the client that took it. A restored process never leaves a park by itself.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._lock = threading.Lock()
        self._process = OwnProcess()
        self._number = 0
        self._holder: Holder | None = None
        self.active = False

    @property
    def is_restored_elsewhere(self) -> bool:
        return self.active and self._process.is_restored

    def take(self, lease_s: float, holder: Holder) -> None:
        """`holder`: the client that will release; when it is gone, the rank goes on."""
        with self._lock:
            if self.active:
                raise UsageError("the rank is parked already", hint=BUSY_HINT)
            self._number += 1
            arguments = (self._number, time.monotonic() + lease_s, holder)
            _start_watcher("prismdbg-lease", self._watch, arguments)  # first: without it nothing ends a lease
            self.active, self._holder = True, holder
            self._recording.recorder.park(True)

    def require(self, holder: Holder | None) -> None:
        """`UsageError` unless the rank is parked, and for this client where it says who it is."""
        if not self.active or (holder is not None and holder != self._holder):
            raise UsageError("the rank is not parked for this client", hint="send park first; its lease may have ended")

    def close_log(self) -> None:
        """After this nothing of the log is open: a checkpoint taken now holds none of it."""
        self._recording.note("parked")
        self._recording.recorder.close_log()
        tracer.close_files()

    def release(self, how: str = "asked", holder: Holder | None = None) -> bool:
        """`holder`: who asks. A park that another client has taken since stays; None releases whatever there is.
        Whether there was one to release."""
        with self._lock:
            if not self.active or (holder is not None and holder != self._holder) or self._is_surely_elsewhere():
                return False
            self.active = False
            try:
                self._recording.recorder.reopen_log()
                tracer.reopen_files()
                self._recording.note("released", how=how)
            finally:
                self._recording.recorder.park(False)
            return True

    def _is_surely_elsewhere(self) -> bool:
        """A job must not wait because nobody can tell."""
        try:
            return self.is_restored_elsewhere
        except Exception:
            return False

    def _holds(self, number: int) -> bool:
        with self._lock:  # it may just be taken
            return self.active and self._number == number

    def _watch(self, number: int, deadline: float, holder: Holder) -> None:
        """Until this park is over, by its client or by itself. Opens no file before that."""
        while self._holds(number):
            if (gone := holder.is_gone) or time.monotonic() > deadline:
                self.release("its client has ended" if gone else "the lease ended", holder)
                return
            time.sleep(WATCH_S)


class Window:
    """Payloads as `record` was told, or as a client asks, and then only as long as that client lives. While one has
    the window, it is nobody else's to change."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._lock = threading.Lock()
        self._process = OwnProcess()
        self._number = 0
        self._holder: Holder | None = None

    def set(self, on: bool, steps: int, size_bytes: int, holder: Holder | None) -> None:
        with self._lock:
            self._require_free(holder)
            if holder is not None:
                _start_watcher("prismdbg-window", self._watch, (self._number + 1, holder))
            self._recording.window(on, steps, size_bytes)
            self._number += 1
            self._holder = holder

    def give_back(self, holder: Holder) -> None:
        """As `record` was told; nothing where this client does not have it."""
        with self._lock:
            if holder == self._holder:
                self._back()

    def _require_free(self, holder: Holder | None) -> None:
        if self._holder is not None and holder != self._holder and not self._holder.is_gone:
            raise UsageError("the rank's payload window is taken", hint=BUSY_HINT)

    def _back(self) -> None:
        self._holder = None
        self._number += 1
        self._recording.window(*self._recording.config.payload_window)

    def _is_set(self, number: int) -> bool:
        with self._lock:  # it may just be set
            return self._number == number

    def _watch(self, number: int, holder: Holder) -> None:
        """Opens no file before its client is gone: another one may be taking an image."""
        while self._is_set(number):
            if holder.is_gone:
                with self._lock, contextlib.suppress(Exception):  # the recorder may be gone
                    if self._number == number and not self._process.is_restored:  # a restored process has no client
                        self._back()
                return
            time.sleep(WATCH_S)


def _start_watcher(name: str, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Before anything is held for a client, for the watcher ends it when the client is gone."""
    try:
        start_own_thread(name, target, arguments)
    except RuntimeError as error:
        raise FacilityError(
            f"the rank's process cannot watch the client: {error}",
            hint="raise its limit of threads before you start it: see `ulimit -u` and the pids limit of its container",
        ) from error


def _lease_s(message: Message) -> float:
    asked = message.get("lease_s", 60)
    if type(asked) not in (int, float):
        raise UsageError("lease_s must be a number of seconds", hint="send a number, as in 60")
    return float(min(asked, LONGEST_LEASE_S)) if asked > 0 else LONGEST_LEASE_S  # not a number, too


def _number(message: Message, name: str, default: int | None = None) -> int:
    """What the recorder keeps in 64 bits, and the program's threads count with."""
    value = message.get(name, default)
    if type(value) is not int or not 0 <= value <= MOST_OF_A_NUMBER:
        raise UsageError(f"{name} must be a whole number from 0 to {MOST_OF_A_NUMBER}", hint="send such a number")
    return value


def verbs_of(recording: Recording, agent: Agent) -> dict[str, Verb]:
    """By name; see `docs/agent-protocol.md`."""
    return {**_telling(recording), **_holding(recording, agent), **_keeping(recording)}


def _telling(recording: Recording) -> dict[str, Verb]:
    """How the rank is; and the end of its recording."""
    recorder = recording.recorder

    def status(_: Message) -> Message:
        stats = recorder.stats()  # first: a call that is no longer on its way is in flight by now, or over
        return {
            "rank": recording.rank,
            "pid": recording.pid,
            "moment": recording.moment,
            "recorder": recording.kind,
            "lost": recording.lost,
            "parked": recorder.parked(),
            "in_flight": recorder.in_flight(),
            **{key: value for key, value in stats.items() if key != "lost" or value},
        }

    def stacks(_: Message) -> Message:
        """For who may not look from outside."""
        return {"threads": all_stacks()}

    def detach(_: Message) -> Message:
        recording.give_up("detached on request")
        return {}

    return {
        "status": status,
        "stacks": stacks,
        "detach": detach,
        "clock": lambda _: {"monotonic_ns": time.monotonic_ns(), "wall_ns": time.time_ns()},
    }


def _holding(recording: Recording, agent: Agent) -> dict[str, Verb]:
    """While a checkpoint is taken; and what a restored process does then."""
    park, recorder = Park(recording), recording.recorder

    def take(message: Message) -> Message:
        if (holder := Holder.of(message)) is None:
            raise UsageError("park needs the client's process", hint="name it as `holder` and `holder_ticks`")
        park.take(_lease_s(message), holder)
        return {}

    def close_log(message: Message) -> Message:
        park.require(Holder.of(message))
        stats = recorder.stats()
        park.close_log()
        return {
            "step": stats["step"],
            "collective": stats["collective"],
            "record_id": stats["events"],
            "in_flight": recorder.in_flight(),
        }

    def release(message: Message) -> Message:
        return {"was_held": park.release(holder=Holder.of(message))}

    def replay(message: Message) -> Message:
        if not park.is_restored_elsewhere:
            raise UsageError("this is the live rank, not a restored one", hint="restore its capsule first")
        from prismdbg.rank.replay.restored import change_over

        return change_over(recording, agent, message)

    return {
        "park": take,
        "close_log": close_log,
        "release": release,
        "replay": replay,
    }


def _keeping(recording: Recording) -> dict[str, Verb]:
    """What of the run is kept for a capsule."""
    payloads, recorder = Window(recording), recording.recorder

    def window(message: Message) -> Message:
        holder = Holder.of(message)
        if holder is not None and message.get("back"):
            payloads.give_back(holder)
            return {}
        if not isinstance(message.get("on"), bool):
            raise UsageError("window needs `on`", hint="send true or false")
        steps, size_bytes = _number(message, "steps", 0), _number(message, "size_bytes", recording.config.window_bytes)
        payloads.set(message["on"], steps, size_bytes, holder)
        return {}

    def keep_from(message: Message) -> Message:
        recorder.keep_from(_number(message, "step"))
        return {}

    def hash_at(message: Message) -> Message:
        if len(recording.hash_at) >= MOST_HASHES:
            raise UsageError(
                f"the parameters are to be hashed at {MOST_HASHES} steps already",
                hint="wait until the rank has come to some of them",
            )
        recording.hash_at.add(_number(message, "step"))
        return {}

    return {
        "window": window,
        "keep_from": keep_from,
        "hash_at": hash_at,
    }


def serve(recording: Recording, path: Path) -> None:
    """Starts the agent of a rank in production. Without it the rank is still recorded; the log says so."""

    def no_agent(error: Exception) -> None:
        recording.note("no_agent", text=f"no agent: {error}; this rank cannot be captured on request")

    try:
        supervisor = Holder(pid=watched(recording), ticks=0, token="")
        bound = LogBound(recording, lambda: supervisor.pid > 0 and supervisor.is_gone)
        agent = Agent(path, no_agent, bound.look)
        agent.verbs |= verbs_of(recording, agent)
        agent.start()
    except Exception as error:
        no_agent(error)
