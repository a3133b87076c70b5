"""Records an emulated rank's collectives as those of a real one, while the synthesized peers answer them."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.notes import DEVICE_WAITS
from prismdbg.model.collective import Identity
from prismdbg.rank.c10d.call import Call, Redispatch, identity_key
from prismdbg.rank.c10d.completion import Completion
from prismdbg.rank.emulation import real_calls
from prismdbg.rank.emulation.issued import Facts
from prismdbg.rank.emulation.notes import noise_note, parts_note
from prismdbg.rank.emulation.open_calls import OpenCall, PacedClock, work_for
from prismdbg.rank.emulation.pace import Due
from prismdbg.rank.emulation.peers import EmulatedPeers
from prismdbg.rank.emulation.real_groups import RealGroups
from prismdbg.rank.program.isolation import unseen
from prismdbg.rank.recording.python_recorder import PythonRecorder
from prismdbg.rank.tracing import tracer


class EmulatedRecorder(PythonRecorder):
    """No call reaches a backend, also when recording is off or lost, but those of real groups until the rank leaves."""

    def __init__(self, peers: EmulatedPeers, beat: PacedClock, real: RealGroups) -> None:
        super().__init__()
        self._peers = peers
        self._real = real
        self._is_leaving = False
        self._clock = beat
        self._facts = Facts(peers.members_of)
        self._answering = threading.local()
        self.now_ns = beat.now_ns
        self._sequences: Counter[tuple[str, str, int, int]] = Counter()

    def leave(self) -> None:
        """What the program does from here on is answered, and not recorded."""
        self.settle()
        self.mode(0)
        self._real.leave()
        self._is_leaving = True

    def settle(self) -> None:
        """Writes the ends of what is under way on devices; waits for it."""
        if self._clock.devices is not None:
            try:
                self._clock.devices.drain()
            except RuntimeError as error:  # of CUDA: the ends stay unknown
                self.note(DEVICE_WAITS, f"CUDA did not say when the last collectives ended: {error}")

    def _is_real(self, call: Call) -> bool:
        return self._real.is_real(call.group_name) and not self._is_leaving

    def _takes_fingerprint(self, call: Call) -> bool:
        return self._is_real(call)

    def collective(self, call: Call, redispatch: Redispatch) -> Any:
        if self._is_real(call):
            self._answering.arrived_ns = self._clock.now_ns()
            return super().collective(call, redispatch)
        if self._mode == 1:
            self._clock.prepare(call)
        due = self._issued(call) if self._mode == 1 and self._clock.pace is not None else None
        self._answering.arrived_ns = self._clock.now_ns() if due is None else due.arrived_ns
        self._answering.came_ns, self._answering.until_ns = self._answering.arrived_ns, None
        try:
            return super().collective(call, lambda: self._answered(call, due))
        finally:
            tracer.answered()
            self._clock.computes(self._answering.came_ns, self._answering.until_ns)

    def _issued(self, call: Call) -> Due | None:
        began_ns = self._clock.now_ns()
        facts = self._facts.of(call)
        self._clock.leave_out_since(began_ns)
        return self._clock.issue(facts)

    def unreadable(self, error: Exception, redispatch: Redispatch) -> Any:
        raise error

    def _answered(self, call: Call, due: Due | None) -> Any:
        identity = self._identity(call)
        is_carried = due is not None and due.busy_ns > 0 and not self._clock.runs_on_stream(call)
        answered = self._peers.answer(call, identity, can_be_later=is_carried)
        call.synthesized, call.made = True, answered.how
        if answered.like is not None:
            self.append(fmt.Kind.NOTE, noise_note(identity, *answered.like))
        with unseen():
            parts = parts_note(identity, call)
        if parts is not None:
            self.append(fmt.Kind.NOTE, parts)
        self._answering.call = opened = OpenCall(
            self, self._clock, call, due, answered.fill, answered.later, self._answering.arrived_ns
        )
        self._answering.until_ns = opened.issuer_goes_on_ns()
        self._answering.source = answered.source
        if call.spec.returns == "nothing":
            opened.wait()
            self._answering.came_ns = self._answering.until_ns = self._clock.now_ns()  # it has stood
            return None
        needs_python = answered.fill is not None or call.spec.is_from_any
        return call.result(
            work_for(opened, call, answered.source, has_python_half=needs_python, devices=opened.devices)
        )

    def _arrived_ns(self) -> int:
        arrived_ns: int = self._answering.arrived_ns
        return arrived_ns

    def _wrapped(self, call: Call, result: Any, completion: Completion) -> Any:
        """What it is given waits by itself: only the log is told."""
        if not call.synthesized:
            return real_calls.told(self, call, super()._wrapped(call, result, completion), completion)
        self._answering.call.opened(completion, self._answering.source)
        del self._answering.call
        return result

    def _identity(self, call: Call) -> Identity:
        """Also of a call that is not recorded."""
        group, op, peer, tag = key = identity_key(call.spec, call)
        sequence = self._sequences[key]
        self._sequences[key] += 1
        return Identity(group, sequence, op, peer, tag)
