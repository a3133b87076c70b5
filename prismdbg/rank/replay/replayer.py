"""A rank among virtual peers: every collective is looked up by identity, compared with the record, and answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import torch

from prismdbg.capsule.log.coverage import needs_payload
from prismdbg.capsule.log.events import RankLog
from prismdbg.errors import PrismError, UsageError
from prismdbg.model.breakpoints import BreakpointKind, StopReason
from prismdbg.model.collective import Collective, State
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS
from prismdbg.protocol.values import collective_to_json
from prismdbg.rank.c10d.call import Call, Redispatch
from prismdbg.rank.c10d.counters import Counters
from prismdbg.rank.c10d.works import finished
from prismdbg.rank.debug.breakpoints import CallView
from prismdbg.rank.debug.events import Events
from prismdbg.rank.debug.gate import Gate, Stop
from prismdbg.rank.debug.stopping import Halts
from prismdbg.rank.program.frames import program_frame, stack_of
from prismdbg.rank.program.isolation import ours, refuse_collective
from prismdbg.rank.replay.comparison import Difference, Measure, Sent, Tally, compare, describe_call
from prismdbg.rank.replay.departure import Departure, rests_on
from prismdbg.rank.replay.peers import Answer, PeerSource, RecordedPeers, SynthesizedPeers, refuse_captured
from prismdbg.rank.replay.state_digest import Place
from prismdbg.rank.replay.waits import holds_issuer, watched
from prismdbg.rank.replay.what_if import Assumption, WhatIf
from prismdbg.rank.tracing import tracer

STORY_EVENTS = 8
OTHER_THREADS_S = 10.0


class Replayer:
    """The kernels' interceptor in a replay. `end` is B: the last record that belongs to the capsule.

    sources: asked in order for an answer; the first that knows one gives it. departure: set where the rank may leave
    the record; it then goes on among synthesized peers instead of stopping.
    """

    def __init__(
        self, log: RankLog, peers: RecordedPeers, counters: Counters, gate: Gate, publish: Callable[..., None]
    ) -> None:
        self._log = log
        self._recorded = peers
        self.sources: list[PeerSource] = [peers, SynthesizedPeers()]
        self._counters = counters
        self._gate = gate
        self._publish = publish
        self._by_identity = {record.identity: record for record in log.collectives}
        self._by_id = {record.record_id: record for record in log.collectives}
        self.first = counters.record_id
        self.end = log.collectives[-1].record_id if log.collectives else -1
        self.measure = Measure()
        self.departure: Departure | None = None
        self.what_if: WhatIf | None = None
        self.beyond_end = False
        self._assumed_from: Moment | None = None  # of an emulated rank: the first that received anything
        self.tally = Tally()
        self.place = Place()
        self.halts = Halts(gate, publish)
        self.halts.stops.assumes = self.assumes
        self.events: Events | None = None
        self._served = threading.Condition()
        self._all_told = False
        self._threads: dict[int, int] = {}  # this process's threads, as the record numbers them

    @property
    def moment(self) -> Moment:
        return self._counters.moment

    def collective(self, call: Call, redispatch: Redispatch) -> Any:
        refuse_collective(call.spec.label)
        refuse_captured(call, self.moment)
        with ours():
            answer, number = self._replayed(call)
            try:
                if tracer.tells_waits() and answer.failure is None and not holds_issuer(call):
                    return call.result(watched(call, number, answer.source))
                return call.result(finished(call, answer.source, answer.failure))
            finally:
                tracer.answered()

    def _replayed(self, call: Call) -> tuple[Answer, int]:
        """Compared, answered, and perhaps stopped at; with the number of its record."""
        record_id, moment, identity = self._counters.issue(call)
        titles = self.titles(call.group_name)
        event = describe_call(call, record_id, moment, identity, titles[-1])
        if self.departed:
            event["assumed"] = True
        if self.events is not None:
            self.events.collective(call.spec.label, moment)
        tracer.seen([*call.inputs, *call.outputs])
        sent = Sent(call)
        view = CallView(call, moment, identity, None, titles)
        view.record = record = None if self.beyond_end else self._expected(view, event, sent)
        self.place.sends(moment, identity, sent.fingerprint)
        halt = self.halts.before(view)
        answer = self._answer(call, record, moment, event)
        self.place.receives(moment, record, answer.synthesized and not answer.again)
        if self.events is not None:
            self.events.answered()
        if record is not None:
            self._serve(record)
        if reason := self.halts.after(halt, event, answer.synthesized):
            view.synthesized = answer.synthesized
            self._stop(reason, view, event, stops=halt.stops, answered=True)
        return answer, record_id if record is None else record.record_id

    def titles(self, group: str) -> tuple[str, ...]:
        """What a group may be called: its name, its description, and last what people call it."""
        known = self._log.groups.get(group)
        return (group, known.desc, known.title) if known is not None else (group,)

    @property
    def departed(self) -> bool:
        """Whether the rank has left the record, so that everything later is assumed."""
        return self.departure is not None and self.departure.left is not None

    @property
    def is_off_the_record(self) -> bool:
        """Whether no call is a recorded one any more."""
        return self.departed or self.beyond_end

    def assumes(self, moment: Moment, names: Collection[str]) -> bool:
        """Whether a value at `moment`, made of these names, rests on what peers are assumed to send."""
        departed = self.departure is not None and self.departure.assumes(moment, names)
        return departed or rests_on(self._assumed_from, moment, names)

    def unreadable(self, error: Exception, redispatch: Redispatch) -> Any:
        raise error

    def _expected(self, view: CallView, event: dict[str, Any], sent: Sent) -> Collective | None:
        """The record this call is; stops where the log ends or the call is not the recorded one."""
        if self.departed:
            if view.moment > self._by_id[self.end].moment:
                self._end_of_log(view, event)
            return None
        record = self._by_identity.get(view.identity)
        if record is not None and record.record_id <= self.end:
            differences = compare(view.call, record, self.tally, self.measure, sent)
            if differences:
                self._diverged(record, view, event, differences)
            if self.departed or any(d.structural for d in differences):  # what was recorded answers another call
                self.tally.served.add(record.record_id)
                return None
            return record
        if missing := self._behind(record):
            extra = Difference(
                field="call",
                expected=f"{len(missing)} recorded collectives still expected",
                actual=str(view.identity),
            )
            self._diverged(None, view, event, [extra])
            self.beyond_end = not self.departed
        else:
            self._end_of_log(view, event)
        return None

    def _end_of_log(self, view: CallView, event: dict[str, Any]) -> None:
        self._await_step(view)
        told = {"event": "end_of_log", "moment": str(view.moment), "tally": self.tally_json()}
        self._stop(StopReason.END_OF_LOG, view, event, told)
        self.beyond_end = True

    def _serve(self, record: Collective) -> None:
        with self._served:
            self.tally.served.add(record.record_id)
            self._threads[threading.get_ident()] = record.thread_id
            self._served.notify_all()
            done = not self._all_told and len(self.tally.served) > self.end - self.first and not self.missing()
            self._all_told |= done
        if done:  # told before the program goes on: it may end without another word
            self._publish("all_compared", moment=str(record.moment), tally=self.tally_json())

    def _behind(self, record: Collective | None) -> list[Collective]:
        """What is missing where this thread comes past B. What another thread issued in the recorded run was issued
        before this call, so that thread is given time to come to it. `record`: of this call, if it has one."""
        mine = record.thread_id if record is not None else self._threads.get(threading.get_ident())
        deadline = time.monotonic() + OTHER_THREADS_S
        with self._served:
            while (missing := self.missing()) and mine is not None and all(r.thread_id != mine for r in missing):
                if not self._served.wait(max(deadline - time.monotonic(), 0.0)):
                    break
        return missing

    def _await_step(self, view: CallView) -> None:
        """Where the record took a step before this call, another thread is given time to take it: with it comes what is
        compared at B."""
        record = self._by_identity.get(view.identity)
        if record is not None:
            with self._served:
                self._served.wait_for(lambda: self._counters.step >= record.moment.step, OTHER_THREADS_S)

    def stepped(self) -> None:
        """A step was counted."""
        with self._served:
            self._served.notify_all()

    def missing(self) -> list[Collective]:
        """Recorded collectives from A to B that the program has not issued."""
        return [
            r
            for r in self._log.collectives
            if self.first <= r.record_id <= self.end and r.record_id not in self.tally.served
        ]

    def _answer(self, call: Call, record: Collective | None, moment: Moment, event: dict[str, Any]) -> Answer:
        if self.departure is not None and not self.departure.record_holds(call, moment):
            record = None
        assumed = self.what_if.chosen(call, moment) if self.what_if is not None else None
        if self.what_if is not None and assumed is not None:
            self._await(call, moment, event, *assumed)
        if self.what_if is not None and assumed is not None and assumed[0].answer and call.received:
            told = self._recorded.answer(call, record) if self.what_if.keeps_record(call) else None
            answer = self.what_if.answer(call, *assumed, recorded=told is not None, key=str(event["identity"]))
            self._departs(moment, {"moment": str(moment), "actual": event, "assumed": True})
            if self.departure is not None:
                self.departure.record_holds(call, moment)  # this answer is the first that is not the record's
            self.tally.synthesized += 1
            return answer
        answer = self._ask_sources(call, record)
        if answer.synthesized and not answer.again:
            self.tally.synthesized += 1
            self._publish("synthesized", moment=event["moment"], collective=event)
        if answer.again:
            self.tally.again += 1
            if self._assumed_from is None and any(t.numel() for t in call.received):
                self._assumed_from = moment
        return answer

    def _await(
        self, call: Call, moment: Moment, event: dict[str, Any], assumption: Assumption, peers: list[int]
    ) -> None:
        """Peers that come late, or too late: then the call fails, which it did not when it was recorded."""
        assert self.what_if is not None
        try:
            self.what_if.arrive(call, assumption, peers)
        except RuntimeError:
            self._departs(moment, {"moment": str(moment), "actual": event, "assumed": True})
            raise

    def _ask_sources(self, call: Call, record: Collective | None) -> Answer:
        for source in self.sources:
            if (answer := source.answer(call, record)) is not None:
                return answer
        raise AssertionError("the last source answers every call")

    def _diverged(
        self, record: Collective | None, view: CallView, event: dict[str, Any], differences: list[Difference]
    ) -> None:
        name = view.call.group_name
        group = [r for r in self._log.collectives if r.group == name and r.record_id in self.tally.served]
        told: dict[str, Any] = {
            "event": "diverged",
            "moment": str(view.moment),
            "expected": collective_to_json(record) if record is not None else None,
            "actual": {**event, "frames": stack_of(program_frame())},
            "differences": [
                {"field": d.field, "expected": d.expected, "actual": d.actual, "structural": d.structural}
                for d in differences
            ],
            "history": [collective_to_json(r) for r in group[-STORY_EVENTS:]],
            "tally": self.tally_json(),
        }
        if self.departure is not None:
            self._departs(view.moment, told)
            return
        self._stop(StopReason.DIVERGED, view, event, told)

    def _departs(self, moment: Moment, told: dict[str, Any]) -> None:
        """Told once; the rank goes on."""
        if self.departure is not None and self.departure.leave(moment):
            self._publish(**{**told, "event": "departed"})

    def _stop(
        self,
        reason: str,
        view: CallView,
        event: dict[str, Any],
        told: dict[str, Any] | None = None,
        *,
        stops: tuple[int, ...] = (),
        answered: bool = False,
    ) -> None:
        names = view.names()
        event = {**event, "module": names["module"]}
        if reason == StopReason.DIVERGED:
            stops = self.halts.stops.of_kind(BreakpointKind.DIVERGENCE, names.__getitem__, view.frame)
        sent = tuple(view.call.inputs)
        self._gate.stop(
            Stop(reason, view.moment, event, view.frame, names, told, answered=answered, stops=stops, sent=sent)
        )

    def rescue(self, record_id: int, op: str, outputs: list[torch.Tensor]) -> bool | int:
        """A work issued before A that had not completed: the recorded answer if there is one, else synthesized. Gives
        the sender's rank in the group of a receive from any source, else True."""
        record = self._by_id.get(record_id)
        self.tally.served.add(record_id)
        try:
            if record is not None and record.payload is not None:
                self._recorded.fill(outputs, record.payload)
                return self._sender(record)
            if record is not None and record.state is State.COMPLETED and not needs_payload(record, self._log):
                return self._sender(record)
        except PrismError as error:
            self._publish("note", text=str(error))
        self.tally.synthesized += 1
        if record is not None and (group := self._log.groups.get(record.group)) is not None:
            SynthesizedPeers().complete(record, group.size, outputs)
        self._publish(
            "synthesized",
            moment=str(record.moment if record else self.moment),
            collective={"op": op, "record_id": record_id},
        )
        return True if record is None else self._sender(record)

    def _sender(self, record: Collective) -> bool | int:
        """The next rank of the group where it is not known."""
        if record.op not in OPS or not OPS[record.op].is_from_any:
            return True
        group = self._log.groups.get(record.group)
        if record.source_rank >= 0 or group is None:
            return record.source_rank
        return (group.ranks.index(self._log.rank) + 1) % group.size

    def recorded_outputs(self, stop: Stop) -> list[torch.Tensor]:
        """What the stopped collective received when it was recorded."""
        record = self._by_id.get(int(stop.event.get("record_id", -1)))
        received = stop.names.get("out", [])
        if record is None or record.payload is None or str(record.identity) != stop.event.get("identity"):
            raise UsageError(
                "the data that this collective received was not recorded", hint="record with a larger --window, or all"
            )
        outputs = [torch.empty_like(tensor) for tensor in received]
        self._recorded.fill(outputs, record.payload)
        return outputs

    def _by_tolerance(self) -> dict[str, Any]:
        tally = self.tally
        if not self.measure.tolerance:
            return {}
        return {"within": tally.within, "unsketched": tally.unsketched, "farthest": tally.farthest}

    def tally_json(self) -> dict[str, Any]:
        tally = self.tally
        return {
            "compared": tally.compared,
            "fingerprints": tally.fingerprints,
            "object_notes": tally.object_notes,
            **self._by_tolerance(),
            "synthesized": tally.synthesized,
            **({"again": tally.again} if tally.again else {}),
            "missing": len(self.missing()),
            "affected": str(self.departure.affected) if self.departure and self.departure.affected else None,
        }
