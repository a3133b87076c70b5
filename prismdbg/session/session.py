"""What the debugger knows and what it may ask next. Every method that names an action gives the request for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prismdbg.errors import UsageError
from prismdbg.expr.parser import parse
from prismdbg.model.breakpoints import AT_NO_EVENT, ON_THE_WAY, StopReason
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.session.answers import Phase
from prismdbg.session.breakpoints import BreakpointList
from prismdbg.session.frames import frames_of, own_frame
from prismdbg.session.notices import (
    AllCompared,
    BreakpointFailed,
    Departed,
    Diverged,
    EndOfLog,
    Finished,
    HangsAgain,
    Hit,
    Notice,
    ProgramRaised,
    Stopped,
    parse_stop,
)
from prismdbg.session.outside_collective import OutsideCollective
from prismdbg.session.places import Places
from prismdbg.session.recorded_hang import RecordedHang
from prismdbg.session.visits import Visits
from prismdbg.session.watches import WatchList

__all__ = ["Ask", "Phase", "Session"]

MAX_COUNT = 1_000_000
AROUND_LINES = 5
MAX_ERRORS, MAX_ERROR = 1000, 2000  # of conditions that cannot be evaluated
RUNS_ON_HINT = "type `continue` to wait for it, `restart 0` to go back to the start moment, or `quit` to end it"
GONE_HINT = "type `restart`, or any command that goes back, to start it again"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the agent."""

    verb: str
    arguments: dict[str, Any] = field(default_factory=dict)


class Session:
    """One rank, one replay. Front ends hand it every notice and every stack, and send what it gives them."""

    def __init__(
        self,
        end_record: int | None = None,
        recorded: Sequence[Moment] = (),
        standing: OutsideCollective | None = None,
        hang: RecordedHang | None = None,
    ) -> None:
        """`end_record`: the last record that belongs to the capsule, where that is not the log's last.
        `recorded`: the moments of the capsule's collectives, where a front end has them. `standing`: where the rank
        was captured, where that is at no collective and none was recorded after it. `hang`: of a rank whose recording
        ends in a hang outside of a collective."""
        self._standing = standing
        self._came = False  # to a collective since it was restored
        self._end_record = end_record
        self._covered: AllCompared | None = None  # since it was restored
        self._beyond = False  # the end of the recording
        self.hang = hang
        self.hung: HangsAgain | None = None
        self.recorded = tuple(recorded)
        self.phase = Phase.RUNNING
        self.verb = ""  # that is carried out
        self.moment = Moment(0)
        self.last: Stopped | None = None  # where the rank stood last
        self.stopped_times = 0
        self.visits = Visits()
        self.frames: tuple[Frame, ...] = ()
        self.frame = 0
        self.pending: Ask | None = None
        self.divergence: Diverged | None = None
        self.departed: Departed | None = None
        self.raised: ProgramRaised | None = None
        self.finished: Finished | None = None
        self.lost_because = ""
        self.breakpoints = BreakpointList()
        self.watches = WatchList()
        self.places = Places()
        self.ever_diverged = False
        self._failed: set[tuple[int, str]] = set()
        self._asked_beyond = False
        self._last_stop = 0

    @property
    def astray(self) -> OutsideCollective | None:
        """Of a rank that was captured at no collective and has come to none."""
        return self._standing if not self._came and self.phase in (Phase.RUNNING, Phase.STOPPED) else None

    @property
    def left_recording(self) -> bool:
        """Whether collectives may follow that are not the recorded ones."""
        return self._beyond or self.departed is not None

    def hangs_by(self, tally: dict[str, Any] | None) -> RecordedHang | None:
        """The recorded hang, where all that precedes it was replayed, so that silence means that it happened again.
        None for a rank that has left the recording. `tally`: what the rank says was compared; None where it does not
        answer."""
        if self.hang is None or self.left_recording:
            return None
        if tally is not None and "missing" in tally:
            return self.hang if not tally["missing"] else None
        is_there = self._covered is not None or not self.recorded or self.moment >= self.recorded[-1]
        return self.hang if is_there else None

    @property
    def compared(self) -> dict[str, Any]:
        """The tally of the whole recording as the rank told it; empty where it did not since it was restored."""
        return self._covered.tally if self._covered is not None else {}

    @property
    def other_frames(self) -> tuple[tuple[Frame, ...], str]:
        """The stack of a rank that cannot be asked for its own, and what stack that is; empty where it can be asked, or
        none is known."""
        if (standing := self.astray) is not None:
            return standing.frames, ""
        if self.hung is not None and self.phase is Phase.HUNG:
            now = bool(self.hung.frames)
            return self.hung.known_frames, "" if now else f"as recorded, because {self.hung.why_not}:"
        stop = self.stop
        if self.hang is not None and stop is not None and stop.reason in AT_NO_EVENT:
            return self.hang.frames, "where it hung in the recording; the replayed rank has not run yet:"
        return (), ""

    @property
    def stop(self) -> Stopped | None:
        """Where the rank stands now."""
        return self.last if self.phase is Phase.STOPPED else None

    @property
    def position(self) -> Moment:
        """Where the rank stands, as `Stopped.position` has it. Where it has ended, hangs or was lost, that is behind
        everything that is known of it."""
        stop = self.stop
        return stop.position if stop is not None else self.moment.end

    def named(self, notice: Notice) -> Notice:
        """With what its stops are: a number alone says little, and one that was to hit once is gone soon."""
        match notice:
            case Stopped():
                return self._with_titles(notice, notice.stops)
            case Hit():
                title, message = self.breakpoints.titles([notice.stop])[0], self.breakpoints.message(notice.stop)
                return replace(notice, title=title, message=message)
            case BreakpointFailed():
                return replace(notice, title=self.breakpoints.titles([notice.stop])[0])
            case _:
                return notice

    def _with_titles(self, stop: Stopped, numbers: tuple[int, ...], **changes: Any) -> Stopped:
        return replace(stop, stops=numbers, titles=self.breakpoints.titles(numbers), **changes)

    def notice(self, notice: Notice) -> bool:
        """Takes in what the rank tells; False for what is known already."""
        match notice:
            case Stopped() if self.phase not in (Phase.RUNNING, Phase.HUNG):  # it stops once each time that it runs
                return False
            case Stopped() if notice.number and notice.number <= self._last_stop:
                return False
            case Stopped():
                self._stopped(notice)
                self.breakpoints.stopped(notice.stops, notice.ignored)
            case Hit():
                self.breakpoints.hit(notice.stop)
            case BreakpointFailed():
                return self._newly_failed(notice)
            case Diverged():
                known = self.divergence is not None and self.divergence.moment == notice.moment
                self.divergence, self.ever_diverged = notice, True
                return not known
            case Departed():
                self.departed = self.departed or notice
            case ProgramRaised():
                self.raised = notice
            case Finished():
                self.phase, self.moment, self.pending = Phase.FINISHED, notice.moment, None
                self.finished = notice
            case AllCompared():
                self._covered = notice
            case EndOfLog():
                self._beyond = True
            case HangsAgain():
                self.phase, self.moment, self.pending = Phase.HUNG, notice.moment, None
                self.frames, self.frame, self.hung = (), 0, notice
            case _:
                pass
        return True

    def _stopped(self, stop: Stopped) -> None:
        self._last_stop = max(stop.number, self._last_stop)
        self.phase, self.moment, self.pending = Phase.STOPPED, stop.moment, None
        self.frames, self.frame, self._came = (), 0, stop.reason != StopReason.PARKED
        self.last, self.stopped_times = stop, self.stopped_times + 1

    def _newly_failed(self, notice: BreakpointFailed) -> bool:
        failed = notice.stop, notice.error[:MAX_ERROR]
        known = failed in self._failed or len(self._failed) >= MAX_ERRORS
        if not known:
            self._failed.add(failed)
        return not known

    def begin(self, reply: dict[str, Any]) -> None:
        """Takes in the first answer to `progress`: a stop that happened before anybody listened."""
        self.moment = Moment.parse(str(reply["moment"]))
        if reply["stopped"] and self.phase is Phase.RUNNING:
            self.notice(self.named(parse_stop(reply, str(reply["stopped"]))))

    def returned(self, reply: dict[str, Any]) -> None:
        """Takes in the answer to `progress` of a rank that is again where it was: its stops are counted from there."""
        self.phase, self.pending, self.lost_because = Phase.RUNNING, None, ""
        self.finished = self.raised = self.hung = None
        self._covered = None
        self._last_stop = 0
        stop = parse_stop(reply, str(reply["stopped"]))
        self._stopped(self._with_titles(stop, stop.stops))
        self._beyond = bool(stop.collective) and bool(self.recorded) and self.moment > self.recorded[-1]

    def arrives(self, stops: tuple[int, ...] = ()) -> Stopped | None:
        """Where the rank stands, with the verb as the reason where a run to a moment was only its way there. `stops`:
        those whose hit this place is, where they were noted on a way back."""
        stop = self.stop
        if stop is not None and stop.reason in ON_THE_WAY and (stops or self.verb):
            self.breakpoints.stopped(stops, {})
            reason = StopReason.STOP if stops or stop.stops else self.verb
            self.last = self._with_titles(stop, stops or stop.stops, reason=reason)
        return self.stop

    def lost(self, why: str) -> None:
        """The rank or its agent is gone. After the program's end that is as it should be."""
        if self.phase is not Phase.FINISHED:
            self.phase, self.lost_because, self.pending = Phase.LOST, why, None

    def passed(self, stop: Stopped) -> bool:
        """Takes in a stop at which the rank goes on at once; False for one that is known already."""
        if stop.number and stop.number <= self._last_stop:
            return False
        self._last_stop = max(stop.number, self._last_stop)
        self.moment = stop.moment
        return True

    def unlike(self, stop: Stopped) -> tuple[str, ...]:
        """What is not as it was at the first visit of this place, in words."""
        return self.places.visit(stop.moment, stop.side, stop.place)

    def next(self, count: int = 1) -> Ask:
        if not 1 <= count <= MAX_COUNT:
            raise UsageError(f"next takes a count from 1 to {MAX_COUNT}", hint="type a smaller count")
        return self.resume(count=count)

    def continue_(self) -> Ask:
        """The only way on for a rank that was captured outside of a collective: it may take for ever."""
        return self._resume({})

    def wait_on(self) -> None:
        """A rank that hangs again is waited for once more."""
        if self.phase is Phase.HUNG:
            self.phase, self.hung = Phase.RUNNING, None

    def until(self, moment: Moment) -> Ask:
        self.require_stop()
        if moment <= self.position:
            raise UsageError(
                f"{moment} is before the current moment, {self.moment}", hint=f"type `goto {moment}` to go back to it"
            )
        return self.resume(until=str(moment))

    def next_step(self, count: int = 1) -> Ask:
        self.require_stop()
        return self.resume(until=str(Moment(self.moment.step + count)))

    def may_go_beyond(self, insists: bool) -> None:
        """At the record's end going on is asked for once: everything later is made up."""
        if self.stop is None or self.stop.reason != StopReason.END_OF_LOG or self._asked_beyond:
            return
        self._asked_beyond = True
        if not insists:
            raise UsageError(
                "the recording ends here: from here on peers' answers are synthesized, and later values depend on them",
                hint="type the command again, or `continue!`, to continue past the end of the recording",
            )

    def pause(self) -> Ask:
        if self.phase is not Phase.RUNNING:
            raise UsageError(f"the rank is {self.phase}, not running", hint="type `continue` or `next` to run it")
        return Ask("pause")

    def stack(self) -> Ask:
        self.require_view()
        return Ask("stack")

    def threads(self) -> Ask:
        self.require_view()
        return Ask("threads")

    def stack_known(self, frames: list[dict[str, Any]]) -> None:
        """Takes in an answer to `stack`; the first time at a stop, the program's own frame is chosen."""
        known = bool(self.frames)
        self.frames = frames_of(frames)
        if not known:
            self.frame = own_frame(self.frames)

    def move(self, outwards: int) -> Frame:
        """Chooses another frame, `outwards` up the stack or down where negative."""
        self.require_view()
        chosen = self.frame + outwards
        if not self.frames:
            raise UsageError("no Python frame here", hint="run to a collective with `next`")
        if not 0 <= chosen < len(self.frames):
            raise UsageError(
                "this is the outermost frame" if outwards > 0 else "this is the innermost frame",
                hint="type `where` to list the frames",
            )
        self.frame = chosen
        return self.frames[chosen]

    def evaluate(self, text: str) -> Ask:
        """Reads the expression first: what is wrong in it is said here, with a caret."""
        expression = parse(text)
        self.require_view()
        return Ask("evaluate", {"expression": expression.text, "frame": self.frame})

    def difference(self, text: str) -> Ask:
        expression = parse(text)
        self.require_view()
        return Ask("difference", {"expression": expression.text, "frame": self.frame})

    def tensor_bytes(self, text: str, offset: int, count: int) -> Ask:
        return Ask("bytes", {**self.evaluate(text).arguments, "offset": offset, "count": count})

    def local_names(self) -> Ask:
        self.require_view()
        return Ask("locals", {"frame": self.frame})

    def source(self, line: int | None = None, around: int = AROUND_LINES) -> Ask:
        self.require_view()
        return Ask("source", {"frame": self.frame, "around": around, "line": line})

    def peers(self) -> Ask:
        self.require_view()
        return Ask("peers")

    def tally(self) -> Ask:
        """What was compared, and what is still to come up to B."""
        self.require_alive()
        return self.progress()

    def progress(self) -> Ask:
        """As `tally`, of a rank that runs or stands."""
        return Ask("progress", {} if self._end_record is None else {"end": self._end_record})

    def history(self, count: int) -> Ask:
        """The moments of the last collectives before here."""
        self.require_view()
        return Ask("history", {"count": count})

    def quit(self) -> Ask | None:
        """None where there is nothing left to end."""
        return Ask("quit") if self.phase in (Phase.RUNNING, Phase.STOPPED, Phase.HUNG) else None

    def resume(self, **arguments: Any) -> Ask:
        if (standing := self.astray) is not None:
            raise UsageError(standing.text, hint=standing.hint)
        return self._resume(arguments)

    def _resume(self, arguments: dict[str, Any]) -> Ask:
        self.require_stop()
        if self._end_record is not None:
            arguments["end"] = self._end_record
        self.pending = Ask("resume", arguments)
        return self.pending

    def resumed(self) -> None:
        """The agent took the last `resume`."""
        self.phase = Phase.RUNNING
        self.frames, self.frame = (), 0

    def enclosing(self) -> dict[str, Any]:
        """The innermost module whose call is under way here, and the step: what `finish` ends."""
        module = str(self.require_stop().collective.get("module", ""))
        return {"module": module, "step": self.moment.step}

    def require_no_run(self) -> None:
        if self.phase is Phase.RUNNING:
            raise UsageError(
                "the rank is running",
                hint="interrupt it with Ctrl-C (in an editor, with Pause), or wait until it stops",
            )

    def require_alive(self) -> None:
        if self.phase is Phase.FINISHED:
            raise UsageError("the program has ended", hint="go back: reverse-next, goto and restart still work")
        if self.phase is Phase.LOST:
            raise UsageError(f"the rank is lost: {self.lost_because}", hint=GONE_HINT)
        if self.hung is not None and self.phase is Phase.HUNG:
            raise UsageError(f"the rank hangs again after {self.moment}, as recorded", hint=self.hung.hint)

    def require_stop(self) -> Stopped:
        """Where the rank stands."""
        self.require_alive()
        if (stop := self.stop) is None:
            raise UsageError("the rank is running", hint="type `continue` to wait until it stops")
        return stop

    def require_view(self) -> None:
        """A thread of the rank waits for questions: everywhere but where a restored rank stands at first."""
        if (standing := self.astray) is not None:
            raise UsageError(standing.text, hint=standing.hint)
        if self.require_stop().reason == StopReason.PARKED:
            raise UsageError(
                "the rank is where it was captured and has not run yet, so it has no frame",
                hint="type `next` to run to the next collective",
            )
