"""`memory ...` at a stop: read from the rank's own trace, up to where it stands.

Where nothing was traced yet, the rank is run again from the capsule's beginning with the tracer on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from prismdbg.capsule.memory_format import device_number
from prismdbg.capsule.new_file import check_place
from prismdbg.debugger.driver import Driver
from prismdbg.debugger.routes import Routes
from prismdbg.errors import UsageError, quoted
from prismdbg.jobs.replay.memory_trace import trace_folder
from prismdbg.memory.curve import Curve, curve
from prismdbg.memory.difference import Difference, diff
from prismdbg.memory.grouping import By
from prismdbg.memory.live import Live, live_at
from prismdbg.memory.peak import Peak, peak
from prismdbg.memory.snapshot import write_snapshot
from prismdbg.memory.trace import MemoryTrace, open_trace
from prismdbg.model.breakpoints import AT_NO_EVENT, StopReason
from prismdbg.model.moment import Moment
from prismdbg.session import answers
from prismdbg.session.answers import Answer
from prismdbg.session.line import Line, Verb
from prismdbg.session.session import Ask
from prismdbg.session.trace_place import TracePlace

HINT = (
    "type memory [size|stack|age|module|op] [MOMENT], memory peak, memory curve, memory diff M1 M2, memory export FILE"
    ", and `on DEVICE` at the end"
)

Shown = Live | Peak | Difference | Curve


class MemoryVerbs:
    """`recorded`: the trace that the capsule holds."""

    def __init__(self, driver: Driver, routes: Routes, recorded: Path | None = None) -> None:
        self._driver = driver
        self._routes = routes
        self._recorded = recorded
        self._said = False

    def verbs(self) -> dict[Verb, Callable[[Line], Answer]]:
        return {Verb.MEMORY: self._memory}

    def trace(self) -> MemoryTrace:
        """Of what happened up to here: of this rank where it is traced, else as it was recorded; made first where there
        is none."""
        session = self._driver.session
        session.require_view()
        if not self._driver.traces and self.recorded is not None:
            if not self._said:
                self._driver.say("memory as recorded, from the job's start; `trace on` traces this replay")
                self._said = True
            whole = open_trace(self.recorded)
            return open_trace(self.recorded, whole.records_before(whole.row_at(self._recorded_at)))
        self._routes.need_trace()
        status = self._driver.ask(Ask("trace"))
        return open_trace(trace_folder(self._driver.travel.own, status), status.get("records"))

    @property
    def place(self) -> TracePlace:
        if not self._driver.traces or self._driver.session.stop is None:
            return TracePlace(folder=self.recorded, at=self._recorded_at)
        return TracePlace(folder=trace_folder(self._driver.travel.own, self._driver.ask(Ask("trace"))))

    @property
    def recorded(self) -> Path | None:
        """While this replay is the run that was recorded, and where the record reaches. Where the rank stands between
        two collectives, at an exception for instance, the record does not say how far it has come."""
        session = self._driver.session
        left = session.ever_diverged or session.departed is not None
        beyond = bool(session.recorded) and session.moment > session.recorded[-1]
        return None if left or beyond or self._is_between else self._recorded

    @property
    def _is_between(self) -> bool:
        stop = self._driver.session.stop
        if stop is None or stop.reason in AT_NO_EVENT:
            return False
        return not stop.collective or "kind" in stop.collective

    @property
    def _recorded_at(self) -> Moment:
        """A captured rank stands at first where it was about to issue its first collective."""
        session = self._driver.session
        parked = session.stop is not None and session.stop.reason == StopReason.PARKED
        return session.recorded[0] if parked and session.recorded else session.moment

    def _memory(self, line: Line) -> Answer:
        words, device = _on_device(line.text.split())
        word, *rest = words or ["live"]
        if word == "export" and len(rest) == 1:
            return self._export(Path(rest[0]), device)
        if word in ("peak", "curve") and not rest:
            return self._shown(peak if word == "peak" else curve, By.OP, device)
        if word == "diff" and len(rest) == 2:
            first, second = (Moment.parse(text) for text in rest)
            return self._shown(lambda trace: diff(trace, first, second), By.STACK, device, of=(first, second))
        if (word == "live" or word in set(By)) and len(rest) < 2:
            at = tuple(Moment.parse(text) for text in rest)
            by = By(word) if word in set(By) else By.STACK
            return self._shown(lambda trace: live_at(trace, *at), by, device, of=at)
        raise UsageError(f"memory does not take {quoted(line.text)}", hint=HINT)

    def _on(self, device: int | None) -> MemoryTrace:
        trace = self.trace()
        return trace if device is None else trace.on(device)

    def _shown(
        self,
        look: Callable[[MemoryTrace], Shown | None],
        by: By,
        device: int | None,
        of: Sequence[Moment] = (),
    ) -> Answer:
        """`of`: the moments asked about."""
        trace, here = self._on(device), self._driver.session.moment
        trace.require(*of, here=here)
        moment = of[0] if of else max(here, trace.end)  # an exception lies behind the collective that it is told with
        return answers.Memory(answer=look(trace), by=by, moment=moment)

    def _export(self, path: Path, device: int | None) -> Answer:
        check_place(path)
        if path.exists():
            raise UsageError(f"{path} already exists", hint="choose another name")
        write_snapshot(self._on(device), path)
        return answers.Done(what=f"{path}: open it at pytorch.org/memory_viz")


def _on_device(words: list[str]) -> tuple[list[str], int | None]:
    """What is before `on DEVICE`, and the device's number; None where there is none."""
    if len(words) < 2 or words[-2] != "on":
        return words, None
    try:
        return words[:-2], device_number(words[-1])
    except ValueError as error:
        raise UsageError(str(error), hint="write cpu, cuda:0, cuda:1 ...") from error
