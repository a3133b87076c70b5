"""A replayed rank and the agent's verbs for it, the same from the program's start and after a restore."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prismdbg.capsule.log.clock_reads import BEGIN, At
from prismdbg.capsule.log.events import Note, RankLog
from prismdbg.capsule.log.format import StepSource
from prismdbg.capsule.log.reader import read_log
from prismdbg.model.breakpoints import BreakpointKind, StopReason
from prismdbg.model.moment import Moment
from prismdbg.rank.agent import Agent
from prismdbg.rank.c10d import kernels, unknown_ops
from prismdbg.rank.c10d.counters import Counters
from prismdbg.rank.debug.breakpoints import HELD, line_of
from prismdbg.rank.debug.events import Events
from prismdbg.rank.debug.gate import BreakpointMode, Gate, Stop
from prismdbg.rank.debug.nonfinite_probe import NonfiniteProbe
from prismdbg.rank.program import dates, missing_gpus
from prismdbg.rank.program.frames import innermost
from prismdbg.rank.program.isolation import is_quiet
from prismdbg.rank.recording import state_hash
from prismdbg.rank.recording.steps import COUNTER
from prismdbg.rank.replay import verbs
from prismdbg.rank.replay.peers import RecordedPeers
from prismdbg.rank.replay.recorded_clocks import RecordedClocks
from prismdbg.rank.replay.replayer import Replayer
from prismdbg.rank.replay.scaler_skips import ScalerSkips
from prismdbg.rank.tracing import tracer


class Replaying:
    """Holds the parts together: `prepare`, then `install`."""

    def __init__(self, log_folder: Path, agent: Agent, counters: Counters) -> None:
        self.agent = agent
        agent.waits = True
        self.log: RankLog = read_log(log_folder)
        self.counters = counters
        self.gate = Gate(agent.publish)
        self._log_folder = log_folder
        self._hashes, self._hashes_at_end = hashes_of(self.log.notes)
        self.before_a: dict[str, list[str]] = {}  # what is known of the way to A, where the program went it
        self.ended = self.is_child = False
        self._probe: NonfiniteProbe | None = None
        self._clocks: RecordedClocks | None = None
        self._skips = ScalerSkips(counters, self._skipped)

    def prepare(self) -> None:
        self.replayer = Replayer(
            self.log, RecordedPeers(self._log_folder), self.counters, self.gate, self.agent.publish
        )
        self.events = Events(self.gate, self.replayer.halts.stops)
        self.replayer.events = self.events
        self.gate.describe, self.gate.on_aim = self._describe, self.events.aimed
        self.agent.verbs |= self.verbs()

    def install(self) -> None:
        """From here on every collective reaches the virtual peers."""
        kernels.install(self.replayer)
        unknown_ops.install(unknown_ops.refuse)
        COUNTER.listen_to_scaler(self._skips)
        os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        """What the rank forks is not replayed: its collectives pass, its end is not the rank's."""
        self.ended = self.is_child = True
        kernels.install(None)
        unknown_ops.install(None)

    def give_times(self, clocks: RecordedClocks, at: At = BEGIN, past: int = 0) -> None:
        """From here on those of the log. `past`: so many reads the rank has made at the moment `at`."""
        self._clocks = clocks
        clocks.add(self.log.clock_reads, at, past)
        clocks.go_on(self._at, is_quiet)

    def times(self) -> dict[str, Any]:
        """Whether what the recorded rank read from clocks is known, and where the program read what is not; and whether
        the clocks of `datetime` are among them."""
        if self._clocks is None or not self._clocks.has_any or self._clocks.is_left:
            return {}
        return {"times_not_recorded": list(self._clocks.not_recorded), "has_dates": dates.are_watched()}

    def _at(self) -> At:
        return self.counters.step, self.counters.collective

    def on_step(self, step: int, source: StepSource) -> None:
        self._check_state(step)
        self._skips.step_ends(step, source)
        self.counters.begin_step(step)
        self.replayer.stepped()

    def _skipped(self, moment: Moment, begun: int, in_a_row: int) -> None:
        if self.replayer.is_off_the_record:
            self.agent.publish("skipped", moment=str(moment), begun=begun, in_a_row=in_a_row)

    def exception(self, report: dict[str, Any], error: BaseException) -> None:
        """Where a client debugs, the thread stands at the line that raised, before it unwinds any further."""
        if self.is_child:
            return
        missing_gpus.advise(error, "replay it on a machine with {needed} GPUs or more")
        told = {"event": "exception", "moment": str(self.counters.moment), **report}
        if self.gate.aim.stops is BreakpointMode.OFF:
            self.agent.publish(**told)
        else:
            frame = innermost(error.__traceback__)
            self.events.is_over(frame)
            at = self.counters.moment
            names = {"exception": error, "type": report["type"], "text": report["text"]}
            names |= {"step": at.step, "collective": at.collective, "moment": str(at), **line_of(frame)}
            names |= dict.fromkeys(HELD, tracer.allocated()) if tracer.is_armed() else {}
            numbers = self.replayer.halts.stops.of_kind(BreakpointKind.EXCEPTION, names.__getitem__, frame)
            trace = error.__traceback__
            self.gate.stop(
                Stop(StopReason.EXCEPTION, self.counters.moment, {}, frame, names, told, stops=numbers, trace=trace)
            )

    def _describe(self, stop: Stop) -> dict[str, Any]:
        """What every stop is told with: what its stops still let pass, and where this is to the last bit."""
        place = self.replayer.place.digests() if stop.event or stop.answered else {}
        found = {"ignored": self.replayer.halts.stops.left, "place": place, **self.events.told()}
        return {**found, "origin": self._probe.found} if self._probe is not None else found

    def look_closely(self, nan_only: bool) -> None:
        """On the stopped thread."""

        def moment() -> Moment:
            return tracer.moment() if tracer.is_armed() else self.counters.moment

        self._probe = NonfiniteProbe(nan_only, moment)
        self._probe.__enter__()

    def tell(self, text: str) -> None:
        """A note for the client."""
        self.agent.publish("note", text=text)

    def end(self, code: int) -> None:
        """The program ends by itself."""
        if not self.ended:
            self.ended = True
            if code == 0:
                self._check_state(COUNTER.step, at_exit=True)
            tracer.ended()
            self.agent.publish(
                "finished",
                code=code,
                moment=str(self.counters.moment),
                tally=self.replayer.tally_json(),
                hits=list(self.gate.aim.noted),
            )

    def _check_state(self, step: int, at_exit: bool = False) -> None:
        """Compares the parameters' hash where the record has one for this place."""
        expected = (self._hashes_at_end if at_exit else self._hashes).get(step)
        optimizer = COUNTER.optimizer() if COUNTER.optimizer is not None else None
        if expected is not None and optimizer is not None and not self.replayer.departed:
            actual = state_hash.of(optimizer) or "none"
            self.agent.publish(
                "state",
                moment=str(self.counters.moment),
                expected=expected,
                actual=actual,
                equal=actual == expected,
            )

    def verbs(self) -> dict[str, Any]:
        return verbs.verbs_of(self)

    def hold(self, reason: str) -> None:
        """Stops the calling thread until a client resumes it."""
        self.gate.stop(Stop(reason, self.counters.moment, {}, None, {}))

    @property
    def at_start(self) -> bool:
        return self.gate.current is not None and self.gate.current.reason == StopReason.START


def hashes_of(notes: Iterable[Note]) -> tuple[dict[int, str], dict[int, str]]:
    """By step: those noted where the step begins, before anything else of it, and those noted at the program's end, in
    that step. The step may have begun with other parameters: one that is marked by hand, or one of an optimizer that
    has them only while it steps."""
    at_begin: dict[int, str] = {}
    at_end: dict[int, str] = {}
    for note in notes:
        if note.kind == "state":
            step = int(note.data["step"])
            begun = Moment.parse(str(note.data["moment"])).step >= step
            (at_end if begun else at_begin)[step] = str(note.data["hash"])
    return at_begin, at_end
