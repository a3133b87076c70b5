"""What an agent offers while the rank trains: status, park and release, window, state hash, detach; and, in a
restored process only, the change over to virtual peers."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from prismdbg.errors import UsageError
from prismdbg.protocol.wire import Message
from prismdbg.rank.recording import Recording, start_ticks, start_ticks_of
from prismdbg.rank.tracing import tracer

if TYPE_CHECKING:
    from prismdbg.rank.agent import Agent, Verb


WATCH_S = 0.25
LONGEST_LEASE_S = 300.0  # whatever a client asks for


class Park:
    """Holds the rank at the entry of its next collective, under a lease: a client that dies cannot hold the job.

    A restored process never leaves a park by itself: its start time is not the one that was parked.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._lock = threading.Lock()
        self._ticks = 0
        self._number = 0
        self.active = False

    @property
    def is_restored_elsewhere(self) -> bool:
        return self.active and start_ticks() != self._ticks

    def take(self, lease_s: float, holder: tuple[int, int]) -> None:
        """`holder`: PID and start time of the client that will release; when it is gone, the rank goes on."""
        with self._lock:
            if self.active:
                raise UsageError(
                    "the rank is parked already",
                    hint="another capture of this rank is under way; try again when it is done",
                )
            self.active, self._ticks = True, start_ticks()
            self._recording.recorder.park(True)
            self._number += 1
            arguments = (self._number, time.monotonic() + lease_s, holder)
            threading.Thread(target=self._watch, args=arguments, name="prismdbg-lease", daemon=True).start()

    def close_log(self) -> None:
        """After this nothing of the log is open: a process image taken now holds none of it."""
        self._recording.note("parked")
        self._recording.recorder.close_log()
        tracer.close_files()

    def release(self, how: str = "asked") -> None:
        with self._lock:
            if not self.active or self.is_restored_elsewhere:
                return
            self.active = False
            self._recording.recorder.reopen_log()
            tracer.reopen_files()
            self._recording.note("released", how=how)
            self._recording.recorder.park(False)

    def _watch(self, number: int, deadline: float, holder: tuple[int, int]) -> None:
        """Until this park is over, by its client or by itself."""
        while self.active and self._number == number and not self.is_restored_elsewhere:
            gone = start_ticks_of(holder[0]) != holder[1]
            if gone or time.monotonic() > deadline:
                self._recording.recorder.window(*self._recording.config.payload_window)
                self.release("its client is gone" if gone else "the lease ended")
                return
            time.sleep(WATCH_S)


class Window:
    """Payloads as `record` was told, or as a client asks, and then only as long as that client lives."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._lock = threading.Lock()
        self._ticks = start_ticks()
        self._number = 0

    def set(self, on: bool, steps: int, size_bytes: int, holder: tuple[int, int] | None) -> None:
        with self._lock:
            self._recording.recorder.window(on, steps, size_bytes)
            self._number += 1
        if holder is not None:
            arguments = (self._number, holder)
            threading.Thread(target=self._watch, args=arguments, name="prismdbg-window", daemon=True).start()

    def _watch(self, number: int, holder: tuple[int, int]) -> None:
        while self._number == number and start_ticks() == self._ticks:  # a restored process has no client to lose
            if start_ticks_of(holder[0]) != holder[1]:
                with self._lock, contextlib.suppress(Exception):  # the recorder may be gone
                    if self._number == number:
                        self._recording.recorder.window(*self._recording.config.payload_window)
                return
            time.sleep(WATCH_S)


def _lease_s(message: Message) -> float:
    asked = float(message.get("lease_s", 60))
    return min(asked, LONGEST_LEASE_S) if asked > 0 else LONGEST_LEASE_S  # not a number, too


def production_verbs(recording: Recording, agent: Agent) -> dict[str, Verb]:
    park, payloads = Park(recording), Window(recording)
    recorder = recording.recorder

    def status(_: Message) -> Message:
        return {
            "rank": recording.rank,
            "pid": recording.pid,
            "moment": recording.moment,
            "recorder": recording.kind,
            "lost": recording.lost,
            "parked": recorder.parked(),
            "in_flight": recorder.in_flight(),
            **{key: value for key, value in recorder.stats().items() if key != "lost" or value},
        }

    def take(message: Message) -> Message:
        park.take(_lease_s(message), (int(message["holder"]), int(message["holder_ticks"])))
        return {}

    def close_log(_: Message) -> Message:
        if not park.active:
            raise UsageError("the rank is not parked", hint="ask for park first; its lease may have ended")
        stats = recorder.stats()
        park.close_log()
        return {
            "step": stats["step"],
            "collective": stats["collective"],
            "record_id": stats["events"],
            "in_flight": recorder.in_flight(),
        }

    def release(_: Message) -> Message:
        park.release()
        return {}

    def window(message: Message) -> Message:
        payloads.set(
            bool(message["on"]),
            int(message.get("steps", 0)),
            int(message.get("size_bytes", recording.config.window_bytes)),
            (int(message["holder"]), int(message["holder_ticks"])) if "holder" in message else None,
        )
        return {}

    def keep_from(message: Message) -> Message:
        recorder.keep_from(int(message["step"]))
        return {}

    def hash_at(message: Message) -> Message:
        recording.hash_at.add(int(message["step"]))
        return {}

    def detach(_: Message) -> Message:
        recording.give_up("detached on request")
        return {}

    def replay(message: Message) -> Message:
        if not park.is_restored_elsewhere:
            raise UsageError("this is the live rank, not a restored one", hint="restore its capsule first")
        from prismdbg.rank.restored import change_over

        return change_over(recording, agent, message)

    return {
        "status": status,
        "park": take,
        "close_log": close_log,
        "release": release,
        "window": window,
        "keep_from": keep_from,
        "hash_at": hash_at,
        "detach": detach,
        "clock": lambda _: {"monotonic_ns": time.monotonic_ns(), "wall_ns": time.time_ns()},
        "replay": replay,
    }
