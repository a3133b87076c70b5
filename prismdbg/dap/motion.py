"""Requests that move the rank, as lines of the debugger, and the `stopped` event after each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prismdbg.dap.arguments import Arguments
from prismdbg.dap.breakpoints import Breakpoints
from prismdbg.dap.client import Client, with_hint
from prismdbg.dap.control import Control
from prismdbg.dap.handles import Handles
from prismdbg.dap.recorded import Recorded
from prismdbg.dap.sources import Sources
from prismdbg.dap.telling import Telling
from prismdbg.debugger.debugger import Debugger
from prismdbg.errors import PrismError, UsageError
from prismdbg.model.breakpoints import StopReason
from prismdbg.model.collective import Collective
from prismdbg.model.moment import Moment
from prismdbg.render import stop_text
from prismdbg.session.answers import Answer, Phase
from prismdbg.session.divergence_text import headline
from prismdbg.session.line import Verb

THREAD = 1  # the rank's thread that issues the collectives; the others cannot be moved
MOST_TARGETS = 50
POLL_S = 0.02

Json = dict[str, Any]
Line = Callable[[Arguments], str]

_REASONS: dict[str, str] = {
    StopReason.START: "entry",
    StopReason.RESTORED: "entry",
    StopReason.PARKED: "entry",
    StopReason.PAUSED: "pause",
    StopReason.EXCEPTION: "exception",
    StopReason.DIVERGED: "exception",
    StopReason.END_OF_LOG: "pause",
    Verb.GOTO: "goto",
}


class Motion:
    """`on_move`: what a client was told of a stop is not true any more."""

    def __init__(
        self,
        client: Client,
        control: Control,
        debugger: Debugger,
        telling: Telling,
        breakpoints: Breakpoints,
        on_move: Callable[[], None],
    ) -> None:
        self._client, self._control, self._debugger = client, control, debugger
        self._telling, self._breakpoints, self._on_move = telling, breakpoints, on_move
        self._shown = self._place

    def run(self, line: str, reason: str = "") -> None:
        """Carries out a line that moves the rank; the client is told where it stands then, also where it refused.
        `reason`: the protocol's word for the stop, where that is not the rank's own."""
        error: PrismError | None = None
        try:
            self.do(line)
        except PrismError as failed:
            error = failed
            self._client.say(f"error: {with_hint(failed)}", "important")
        if self._debugger.session.phase is not Phase.RUNNING:
            self._report(reason, error)

    def do(self, line: str) -> Answer:
        """Carries out any line of the debugger."""
        try:
            return self._debugger.do(line)
        finally:
            self._control.stands()
            self._telling.over()

    def stay(self) -> None:
        """The client is told where the rank stands already."""
        self._report("entry", None)

    def report(self) -> None:
        """Tells the client where the rank is, if it is somewhere else than the client knows."""
        if self._place != self._shown and self._debugger.session.phase is not Phase.RUNNING:
            self._report("", None)

    def poll(self) -> None:
        """Takes in what the rank tells while nothing is asked of it: it may die, or run on and stop."""
        self._debugger.poll(POLL_S)
        self._telling.output()
        self.report()

    @property
    def _place(self) -> tuple[Phase, int, Moment]:
        session = self._debugger.session
        return session.phase, session.stopped_times, session.moment

    def _report(self, reason: str, error: PrismError | None) -> None:
        self._on_move()
        self._shown = self._place
        body: Json = {"description": self._description(), "threadId": THREAD}
        stop = self._debugger.session.stop
        own = self._reason()
        if stop is not None and stop.stops:
            body["hitBreakpointIds"] = list(stop.stops)
        if error is not None:
            body |= {"text": str(error)}
        self._telling.stopped(reason if reason and own in ("step", "pause") else own, body)

    def _reason(self) -> str:
        session = self._debugger.session
        if session.phase is Phase.LOST:
            return "exception"
        if session.stop is None:
            return "pause"
        if session.stop.stops and session.stop.reason not in (StopReason.EXCEPTION, StopReason.DIVERGED):
            return self._breakpoints.reason(session.stop.stops)
        return _REASONS.get(session.stop.reason, "step")

    def _description(self) -> str:
        session = self._debugger.session
        if (standing := session.astray) is not None:
            return standing.text
        if session.phase is Phase.LOST:
            return f"the rank is lost: {session.lost_because}"
        if session.finished is not None and session.phase is Phase.FINISHED:
            return stop_text.finished_text(session.finished)
        if session.hung is not None and session.phase is Phase.HUNG:
            return stop_text.hang_headline(session.hung)
        if session.stop is None:
            return str(session.phase)
        if session.stop.reason == StopReason.DIVERGED and session.divergence is not None:
            return headline(session.divergence.story)
        return stop_text.stop_line(session.stop)


class Targets:
    """Moments that `goto` can lead to: the recorded collectives that a line issues, those next to the rank."""

    def __init__(self, recorded: Recorded, debugger: Debugger, sources: Sources, first_line: int) -> None:
        self._recorded, self._debugger = recorded, debugger
        self._sources, self._first_line = sources, first_line
        self._targets: Handles[Moment] = Handles("goto target")

    def of_line(self, arguments: Arguments) -> Json:
        """The answer to `gotoTargets`."""
        path, line = self._sources.path_of(arguments.object("source")), arguments.number("line") - self._first_line + 1
        found = [record for record in self._recorded.calls if _issues(record, path, line)]
        here = self._debugger.session.moment
        after = next((place for place, record in enumerate(found) if record.moment >= here), len(found))
        first = max(0, min(after - MOST_TARGETS // 2, len(found) - MOST_TARGETS))
        near = found[first : first + MOST_TARGETS]
        if not near:
            raise UsageError(f"no collective that this capsule replays is issued at {path}:{line}")
        return {
            "targets": [
                {
                    "id": self._targets.add(record.moment),
                    "label": f"{record.moment} {record.name}",
                    "line": line + self._first_line - 1,
                }
                for record in near
            ]
        }

    def line_to(self, arguments: Arguments) -> str:
        """What the debugger is given for `goto`."""
        return f"goto {self._targets.get(arguments.number('targetId'))}"


def _issues(record: Collective, path: str, line: int) -> bool:
    return any(frame.filename == path and frame.line == line for frame in record.frames)


def lines(targets: Targets) -> dict[str, Line]:
    """What the debugger is given for each request that moves the rank."""

    def by_grain(collective: str, operator: str) -> Line:
        return lambda arguments: operator if arguments.text("granularity", "") == "instruction" else collective

    return {
        "continue": lambda _: "continue",
        "next": by_grain("next", "step"),
        "stepIn": lambda _: "step",
        "stepOut": lambda _: "finish",
        "stepBack": by_grain("reverse-next", "reverse-step"),
        "reverseContinue": lambda _: "reverse-continue",
        "restart": lambda _: "restart",
        "goto": targets.line_to,
    }
