"""A debugger's answers and notices as messages: lines in, states of the screen out.

Runs in the thread that owns the debugger; knows no widget.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from textual.message import Message

from prismdbg.errors import Defect, PrismError, RankLost, UsageError
from prismdbg.model.breakpoints import StopReason
from prismdbg.model.frame import Frame
from prismdbg.model.moment import Moment
from prismdbg.render.stop_text import hang_headline, standing_text, why
from prismdbg.session import answers as told
from prismdbg.session import notices
from prismdbg.session.checkpoint import Checkpoint
from prismdbg.session.divergence_text import headline, render_divergence
from prismdbg.session.frames import own_frame
from prismdbg.session.interrupted import Interrupted
from prismdbg.session.line import Line, Verb, parse_line
from prismdbg.session.session import Phase as SessionPhase
from prismdbg.session.trace_place import TracePlace
from prismdbg_tui.drawing import figures
from prismdbg_tui.session import answers
from prismdbg_tui.session.messages import Said, StateChanged
from prismdbg_tui.session.stop_views import Debugger, StopViews, attempt
from prismdbg_tui.session.views import Phase, SourceView, State, ValueView

MAX_KEPT = 6
MAX_MARKED = 10_000  # moments, in the timeline
_MARKS_S = 0.2
_MOST_ASKED = 24  # characters of a command, beside what it does
MOVES = frozenset(
    {
        Verb.NEXT, Verb.REVERSE_NEXT, Verb.STEP, Verb.REVERSE_STEP, Verb.FINISH, Verb.REVERSE_FINISH, Verb.CONTINUE,
        Verb.REVERSE_CONTINUE, Verb.UNTIL, Verb.NEXT_STEP, Verb.GOTO, Verb.BACK, Verb.FORWARD, Verb.WHO, Verb.ORIGIN,
        Verb.CHECKPOINT, Verb.RESTART, Verb.MEMORY,
    }
)  # fmt: skip


class DebuggerMessages:
    """`checkpoints` gives the checkpoints there are now, `trace` where the memory trace lies."""

    def __init__(
        self,
        debugger: Debugger,
        tell: Callable[[Message], object],
        state: State,
        checkpoints: Callable[[], tuple[Checkpoint, ...]] = tuple,
        trace: Callable[[], TracePlace] = TracePlace,
    ) -> None:
        self._debugger = debugger
        self._views = StopViews(debugger)
        self._tell = tell
        self._checkpoints = checkpoints
        self._trace = trace
        self.state = state
        self._asked = ""
        self._is_kept = False
        self._saved = ""  # what became of the checkpoint that was asked for last
        self._has_unshown_marks, self._shown_s = False, 0.0
        self._kept: tuple[str, ...] = ()  # expressions printed, shown again at each stop

    def begin(self) -> None:
        self._carry_out(lambda: self._answer(self._debugger.begin()))

    def line(self, text: str, *, is_kept: bool = False) -> None:
        """What goes wrong is said. is_kept: it was typed in an earlier session."""
        self._is_kept = is_kept
        self._carry_out(lambda: self._do(text))

    def choose_frame(self, by: int) -> None:
        self._carry_out(lambda: self._moved(by))

    def notice(self, notice: notices.Notice) -> None:
        """What the debugger tells on its way."""
        match notice:
            case notices.Stopped() | notices.Lost():
                pass  # the answer says it, with what is looked at there
            case notices.Progress():
                self._show(doing=self._doing(notice), done=notice.done, total=notice.total, moment=notice.moment)
            case notices.Diverged():
                self._mark(diverged=_marked(self.state.diverged, notice.moment))
            case notices.Synthesized():
                self._mark(synthesized=_marked(self.state.synthesized, notice.moment))
                self._say(answers.notice(notice), "event")
            case notices.StateCompared(equal=False) | notices.Unlike():
                self._show(differs=True)
                self._say(answers.notice(notice), "error")
            case notices.CheckpointMade():
                self._saved = answers.notice(notice) if notice.asked else self._saved
                self._show(checkpoints=self._checkpoints())
                self._say(answers.notice(notice), "event")
            case notices.Cancelled():
                self._show(cancelled=notice.text)
                self._say(notice.text, "event")
            case notices.Returned():
                self._show(moment=notice.moment)
            case _:
                if text := answers.notice(notice):  # what has none is shown otherwise
                    self._say(text, "error" if answers.is_bad(notice) else "event")

    def _doing(self, notice: notices.Progress) -> str:
        """With what was asked for, which may run the rank several times: `origin: running, at 3.1`."""
        asked, text = figures.cut(self._asked, _MOST_ASKED), answers.progress(notice)
        return f"{asked}: {text}" if asked and not text.startswith(asked) else text

    @property
    def is_alive(self) -> bool:
        return self._debugger.session.phase in (SessionPhase.RUNNING, SessionPhase.STOPPED, SessionPhase.HUNG)

    def noticed(self) -> None:
        """While nothing was asked the rank may have ended, or be gone."""
        if self._has_unshown_marks:
            self._show()
        if (phase := _PHASES[self._debugger.session.phase]) is self.state.phase:
            return
        try:
            self._arrived(phase)
        except RankLost:  # while it was looked at: the next poll finds it dead, and then it can be brought back
            self._show(phase=phase, moment=self._debugger.session.moment, doing="", can_look=False)
        except PrismError:
            raise
        except Exception as error:  # of showing it; where the rank is can always be said
            self._wrong(Defect.of(error))
            self._show(phase=phase, moment=self._debugger.session.moment, doing="", can_look=False)

    def _carry_out(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Interrupted as given_up:  # as was asked for
            self._say(_with_hint(given_up), "event")
            if self._debugger.session.phase is not SessionPhase.RUNNING:  # else it may still stop
                self._show(cancelled=str(given_up))
        except PrismError as error:
            self._wrong(error)
        except Exception as error:  # the rank is as well as before: it is not lost with a defect of ours
            self._wrong(Defect.of(error))
        finally:
            self.noticed()

    def _wrong(self, error: PrismError) -> None:
        self._say(_with_hint(error), "error")

    def _do(self, text: str) -> None:
        line = parse_line(text)
        self._asked = text
        if line.verb in MOVES:
            began = {"doing": text, "done": 0, "total": 0, "since_s": time.monotonic(), "cancelled": ""}
            self._show(phase=Phase.RUNNING, can_look=False, **began)
        self._answer(self._debugger.do(text), line)

    def _answer(self, answer: told.Answer, line: Line | None = None) -> None:
        if (line is not None and line.verb in MOVES) or isinstance(answer, told.Arrived):
            if shown := answers.answer(answer, line.verb if line is not None else ""):
                self._say(shown, answers.kind(answer))
            self._arrived(_PHASES[self._debugger.session.phase], answer)
            if line is not None and line.verb is Verb.CHECKPOINT:
                self._show(found=self._saved)  # the console may be out of sight
            return
        match answer:
            case told.Value() if not answer.only_stats:
                self._keep(answer)
            case told.Source():
                self._show(**self._views.of_frame())
            case told.WatchTable():
                self._watched(answer)
            case _:
                pass
        if shown := answers.answer(answer):
            self._say(shown, answers.kind(answer))
        self._show(**self._of_session())

    def _keep(self, value: told.Value) -> None:
        self._kept = (value.text, *(text for text in self._kept if text != value.text))[:MAX_KEPT]
        others = tuple(view for view in self.state.values if view.title != value.text)
        self._show(values=(ValueView(value.text, value.value), *others))

    def _watched(self, table: told.WatchTable) -> None:
        known = {watch.number: watch for watch in self.state.watches} | {w.number: w for w in table.watched}
        shown = {watch.number for watch in self.state.watches}
        added = tuple(watch for watch in table.watched if watch.number not in shown)
        found = {"found": answers.answer(told.WatchTable(watched=added)), "found_shorter": (), "cancelled": ""}
        self._show(watches=tuple(known.values()), **(found if added and not self._is_kept else {}))

    def _moved(self, by: int) -> None:
        self._debugger.choose_frame(by)
        self._show(**self._views.of_frame())

    def _arrived(self, phase: Phase, answer: told.Answer | None = None) -> None:
        session = self._debugger.session
        if phase is Phase.LOST:
            self._show(phase=phase, lost_because=session.lost_because, **_NO_STOP, **self._of_session())
            self._say(f"the rank is lost: {session.lost_because}", "error")
        elif (standing := session.astray) is not None:
            if self.state.reason != standing.text:  # else that was said already
                self._say(standing_text(standing))
            self._shows_elsewhere(phase, standing.text, standing.frames)
        elif phase is Phase.STOPPED:
            self._look(answer)
        elif session.hung is not None and phase is Phase.HUNG:
            self._shows_elsewhere(phase, hang_headline(session.hung), session.other_frames[0])
        elif phase is Phase.RUNS_ON:
            hang = session.hangs_by(None)
            self._shows_elsewhere(phase, "", hang.frames if hang is not None else ())
        else:
            reason = f"the program ended with {session.finished.code}" if session.finished is not None else ""
            self._show(phase=phase, moment=session.moment, reason=reason, **_NO_STOP, **self._of_session())

    def _shows_elsewhere(self, phase: Phase, reason: str, frames: tuple[Frame, ...]) -> None:
        """A rank that is outside of its collectives: `frames` says where, as far as that is known."""
        shown = {"frames": frames, "frame": own_frame(frames) if frames else 0}
        moment = self._debugger.session.moment  # of the last stop: a rank that runs on has come further
        moment = max(moment, self.state.moment) if phase is Phase.RUNS_ON else moment
        self._show(phase=phase, moment=moment, reason=reason, **shown, **_NO_STOP, **self._of_session())

    def _look(self, answer: told.Answer | None) -> None:
        """Everything the panes show of a stop."""
        session = self._debugger.session
        stop = session.stop
        looked: dict[str, Any] = {"values": (), "peers": {}, "frames": (), "names": (), "story": ""}
        looked["source"] = SourceView()
        can_look = stop.reason != StopReason.PARKED
        if frames := session.other_frames[0]:
            looked |= {"frames": frames, "frame": own_frame(frames)}
        if can_look:
            looked |= self._views.of_stop(self._kept, in_collective=bool(stop.collective))
        if stop.reason == StopReason.DIVERGED and session.divergence is not None:
            self._say(render_divergence(session.divergence.story), "error")
            looked["story"] = headline(session.divergence.story)
        looked["found"] = answers.answer(answer) if isinstance(answer, _SEARCHED) else ""
        looked["found_shorter"] = answers.shorter(answer) if answer is not None else ()
        if isinstance(answer, told.Arrived | told.Wrote | told.Allocated | told.Originated):
            looked["watches"] = answer.watched or tuple(
                replace(watch, changed=None, before=None) for watch in self.state.watches
            )
        self._show(
            phase=Phase.STOPPED,
            moment=stop.moment,
            reason=stop.reason,
            hit_here=stop.stops,
            why=why(stop),
            before=before.told if (before := session.visits.before) is not None else None,
            collective=stop.collective,
            tally=self._debugger.tally(),
            can_look=can_look,
            doing="",
            **looked,
            **self._of_session(),
        )

    def _of_session(self) -> dict[str, Any]:
        session = self._debugger.session
        numbers = {watch.number for watch in session.watches.all}
        changed: dict[str, Any] = {"stops": session.breakpoints.all, "hits": dict(session.breakpoints.hits)}
        if any(watch.number not in numbers for watch in self.state.watches):
            changed["watches"] = tuple(watch for watch in self.state.watches if watch.number in numbers)
        return {**changed, "checkpoints": self._checkpoints(), "trace": attempt(self._trace) or TracePlace()}

    def _mark(self, **changed: Any) -> None:
        """They come by the thousand: most of them are shown with whatever is shown next."""
        self.state, self._has_unshown_marks = replace(self.state, **changed), True
        if time.monotonic() - self._shown_s >= _MARKS_S:
            self._show()

    def _show(self, **changed: Any) -> None:
        self.state = replace(self.state, **changed)
        self._has_unshown_marks, self._shown_s = False, time.monotonic()
        self._tell(StateChanged(self.state))

    def _say(self, text: str, kind: str = "said") -> None:
        self._tell(Said(text, kind))


_NO_STOP = {"hit_here": (), "why": "", "story": "", "found": "", "doing": "", "can_look": False}
_SEARCHED = (told.Wrote, told.Allocated, told.Originated)
_PHASES = {
    SessionPhase.RUNNING: Phase.RUNS_ON,  # it is looked at only while no command waits
    SessionPhase.STOPPED: Phase.STOPPED,
    SessionPhase.FINISHED: Phase.FINISHED,
    SessionPhase.LOST: Phase.LOST,
    SessionPhase.HUNG: Phase.HUNG,
}


def _with_hint(error: PrismError) -> str:
    return f"{error}\n  try: {error.hint}" if error.hint else str(error)


def _marked(marked: frozenset[Moment], moment: Moment) -> frozenset[Moment]:
    """Of more than so many marks nobody sees each."""
    return marked if len(marked) >= MAX_MARKED else marked | {moment}


def moment_of(text: str) -> Moment | None:
    """A bare moment, as one pastes it."""
    try:
        return Moment.parse(text) if text[:1].isdigit() else None
    except UsageError:
        return None
