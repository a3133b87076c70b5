"""One session with a rank, told as messages: lines and notices in, questions to the agent, states out.

Runs in the thread that owns the agent's connection; knows no widget.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from textual.message import Message

from prismdbg.errors import PrismError, RankLost, UsageError
from prismdbg.model.moment import Moment
from prismdbg.session import notices
from prismdbg.session.line import Line, Verb, parse_line
from prismdbg.session.session import PARKED, Ask, Session
from prismdbg.session.session import Phase as SessionPhase
from prismdbg.session.story import headline, render_story
from prismdbg_tui import answers
from prismdbg_tui.messages import Said, StateChanged
from prismdbg_tui.views import Phase, SourceView, State, ValueView

ANSWER_BOUND_S = 90.0
AROUND_LINES = 200
SHOWN_AT_STOPS = ("input", "out")
MAX_KEPT = 6


class Client(Protocol):
    """What is needed of an agent's client."""

    def ask(self, verb: str, *, timeout_s: float = 30.0, **arguments: Any) -> dict[str, Any]: ...

    def next_event(self, timeout_s: float | None, what: str) -> dict[str, Any]: ...


class Conversation:
    def __init__(self, client: Client, session: Session, tell: Callable[[Message], object], state: State) -> None:
        self._client = client
        self._tell = tell
        self.session = session
        self.state = state
        self._kept: tuple[str, ...] = ()  # expressions printed, shown again at each stop
        self._verbs: dict[Verb, Callable[[Line], None]] = {
            Verb.NEXT: lambda line: self._go(self.session.next(line.number or 1)),
            Verb.CONTINUE: lambda _: self._go(self.session.continue_()),
            Verb.UNTIL: self._until,
            Verb.INFO: lambda _: self._say(answers.info(self.session, self._ask(self.session.tally())["tally"])),
            Verb.WHERE: lambda _: self._say(answers.stack(self.session.frames, self.session.frame)),
            Verb.UP: lambda line: self.choose_frame(line.number or 1),
            Verb.DOWN: lambda line: self.choose_frame(-(line.number or 1)),
            Verb.LIST: lambda line: self._say(answers.source(self._source(line.number, 5))),
            Verb.PRINT: self._print,
            Verb.LOCALS: lambda _: self._say(answers.names(self._ask(self.session.local_names())["locals"])),
            Verb.PEERS: lambda _: self._say(answers.peers(self._ask(self.session.peers()))),
            Verb.HELP: lambda line: self._say(answers.help_text(line.text)),
        }

    @property
    def running(self) -> bool:
        return self.session.phase is SessionPhase.RUNNING

    def begin(self) -> None:
        self.session.begin(self._client.ask("progress"))
        if self.session.stop is not None:
            self._look()
        else:
            self._show(phase=Phase.RUNNING, since_s=time.monotonic())

    def line(self, text: str) -> None:
        """What goes wrong is said; `RankLost` is for the caller, too."""
        self._carry_out(lambda: self._verb(parse_line(text)))

    def choose_frame(self, by: int) -> None:
        self._carry_out(lambda: self._move(by))

    def pause(self) -> None:
        self._carry_out(lambda: self._paused(self._ask(self.session.pause())))

    def event(self, event: dict[str, Any]) -> None:
        notice = notices.parse_notice(event)
        if not self.session.notice(notice):
            return
        match notice:
            case notices.Stopped():
                self._look()
            case notices.Diverged():
                self._show(diverged=self.state.diverged | {notice.moment})
            case notices.Synthesized():
                self._show(synthesized=self.state.synthesized | {notice.moment})
                self._say(f"{notice.moment} {notice.op}: nothing is recorded, the answer is synthesized", "event")
            case notices.Finished():
                self._show(phase=Phase.FINISHED, moment=notice.moment, reason=f"ended with {notice.code}")
                self._say(answers.finished(notice), "event")
            case notices.StateCompared(equal=False):
                self._show(differs=True)
                self._say(answers.notice(notice), "error")
            case _:
                self._say(answers.notice(notice), "error" if answers.is_bad(notice) else "event")

    def lost(self, why: str) -> None:
        self.session.lost(why)
        if self.session.phase is SessionPhase.LOST:
            self._show(phase=Phase.LOST, lost_because=why, can_look=False)
            self._say(f"the rank is gone: {why}", "error")

    def end(self) -> None:
        """Asks the rank to end; it answers by being gone."""
        if (ask := self.session.quit()) is not None:
            try:
                self._client.ask(ask.verb, timeout_s=5.0)
            except PrismError:
                pass  # whoever started the rank waits for its process, with a bound

    def _carry_out(self, action: Callable[[], None]) -> None:
        try:
            action()
        except RankLost:
            raise
        except PrismError as error:
            self._say(f"{error}\n  {error.hint}" if error.hint else str(error), "error")

    def _verb(self, line: Line) -> None:
        if line.verb not in self._verbs:
            raise UsageError(f"{line.verb} is not carried out here", hint="type it at: prismdbg debug --plain")
        self._verbs[line.verb](line)

    def _ask(self, ask: Ask) -> dict[str, Any]:
        return self._client.ask(ask.verb, timeout_s=ANSWER_BOUND_S, **ask.arguments)

    def _go(self, ask: Ask) -> None:
        self._ask(ask)
        self.session.resumed()
        self._show(phase=Phase.RUNNING, since_s=time.monotonic(), reason="", can_look=False)

    def _until(self, line: Line) -> None:
        assert line.moment is not None
        self._go(self.session.until(line.moment))

    def _paused(self, _: dict[str, Any]) -> None:
        self._say("it stops at its next collective", "event")

    def _print(self, line: Line) -> None:
        value = self._ask(self.session.evaluate(line.text))["value"]
        self._say(answers.value(value))
        self._kept = (line.text, *(text for text in self._kept if text != line.text))[:MAX_KEPT]
        others = tuple(view for view in self.state.values if view.title != line.text)
        self._show(values=(ValueView(line.text, value), *others))

    def _move(self, by: int) -> None:
        self.session.move(by)
        self._show(**self._of_frame())

    def _look(self) -> None:
        """Everything the panes show of a stop."""
        stop = self.session.stop
        assert stop is not None
        looked: dict[str, Any] = {"values": (), "peers": {}, "frames": (), "names": (), "source": SourceView()}
        can_look = stop.reason != PARKED
        if stop.collective and can_look:
            self.session.stack_known(self._ask(self.session.stack())["frames"])
            looked |= {**self._of_frame(), "values": self._values(), "peers": self._try(self.session.peers)}
        if stop.reason == "diverged" and self.session.divergence is not None:
            self._say(render_story(self.session.divergence.story), "error")
            looked["story"] = headline(self.session.divergence.story)
        self._show(
            phase=Phase.STOPPED,
            moment=stop.moment,
            reason=stop.reason,
            collective=stop.collective,
            tally=self._ask(self.session.tally())["tally"],
            can_look=can_look,
            **looked,
        )
        self._say(answers.stop_line(stop))

    def _of_frame(self) -> dict[str, Any]:
        source = self._source(None, AROUND_LINES) if self.session.frames else SourceView()
        names = tuple(self._try(self.session.local_names).get("locals", ()))
        return {"frames": self.session.frames, "frame": self.session.frame, "source": source, "names": names}

    def _source(self, line: int | None, around: int) -> SourceView:
        answer = self._ask(self.session.source(line, around))
        return SourceView(
            filename=str(answer["filename"]),
            function=str(answer.get("function", "")),
            line=int(answer["line"]),
            first=int(answer["first"]),
            lines=tuple(map(str, answer["lines"])),
            note="as the rank sees it",
        )

    def _values(self) -> tuple[ValueView, ...]:
        found = []
        for text in (*self._kept, *SHOWN_AT_STOPS):
            answer = self._try(lambda text=text: self.session.evaluate(text))  # type: ignore[misc]
            if "value" in answer:
                found += answers.opened(text, answer["value"])
        return tuple(found)

    def _try(self, make: Callable[[], Ask]) -> dict[str, Any]:
        """Empty where this stop does not have it: a barrier has no input."""
        try:
            return self._ask(make())
        except RankLost:
            raise
        except PrismError:
            return {}

    def _show(self, **changed: Any) -> None:
        self.state = replace(self.state, **changed)
        self._tell(StateChanged(self.state))

    def _say(self, text: str, kind: str = "said") -> None:
        self._tell(Said(text, kind))


def moment_of(text: str) -> Moment | None:
    """A bare moment, as one pastes it."""
    try:
        return Moment.parse(text) if text[:1].isdigit() else None
    except UsageError:
        return None
