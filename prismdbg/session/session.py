"""What the debugger knows and what it may ask next. Every method that names an action gives the request for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from prismdbg.errors import UsageError
from prismdbg.expr.parser import parse
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.session.frames import frames_of, own_frame
from prismdbg.session.notices import Diverged, Finished, Notice, ProgramRaised, Stopped

MAX_COUNT = 1_000_000
AROUND_LINES = 5
PARKED = "parked"


class Phase(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the agent. `resumes`: the rank runs afterwards, until an event says otherwise."""

    verb: str
    arguments: dict[str, Any] = field(default_factory=dict)
    resumes: bool = False


class Session:
    """One rank, one replay. Front ends hand it every notice and every stack, and send what it gives them."""

    def __init__(self, end_record: int | None = None) -> None:
        """`end_record`: the last record that belongs to the capsule, where that is not the log's last."""
        self._end_record = end_record
        self.phase = Phase.RUNNING
        self.moment = Moment(0)
        self.visited: list[Stopped] = []
        self.frames: tuple[Frame, ...] = ()
        self.frame = 0
        self.pending: Ask | None = None
        self.divergence: Diverged | None = None
        self.raised: ProgramRaised | None = None
        self.finished: Finished | None = None
        self.lost_because = ""
        self._last_stop = 0

    @property
    def stop(self) -> Stopped | None:
        """Where the rank stands now."""
        return self.visited[-1] if self.phase is Phase.STOPPED else None

    def notice(self, notice: Notice) -> bool:
        """Takes in what the rank tells; False for a stop that is known already."""
        match notice:
            case Stopped() if notice.number and notice.number <= self._last_stop:
                return False
            case Stopped():
                self._last_stop = max(notice.number, self._last_stop)
                self.phase, self.moment, self.pending = Phase.STOPPED, notice.moment, None
                self.frames, self.frame = (), 0
                self.visited.append(notice)
            case Diverged():
                self.divergence = notice
            case ProgramRaised():
                self.raised = notice
            case Finished():
                self.phase, self.moment, self.pending = Phase.FINISHED, notice.moment, None
                self.finished = notice
            case _:
                pass
        return True

    def begin(self, reply: dict[str, Any]) -> None:
        """Takes in the first answer to `progress`: a stop that happened before anybody listened."""
        self.moment = Moment.parse(str(reply["moment"]))
        if reply["stopped"] and self.phase is Phase.RUNNING:
            number, collective = int(reply.get("number", 0)), dict(reply.get("collective", {}))
            reason = str(reply["stopped"])
            self.notice(Stopped(reason=reason, moment=self.moment, number=number, collective=collective))

    def lost(self, why: str) -> None:
        """The rank or its agent is gone. After the program's end that is as it should be."""
        if self.phase is not Phase.FINISHED:
            self.phase, self.lost_because, self.pending = Phase.LOST, why, None

    def next(self, count: int = 1) -> Ask:
        if not 1 <= count <= MAX_COUNT:
            raise UsageError(f"next takes a count from 1 to {MAX_COUNT}")
        return self._resume(count=count)

    def continue_(self) -> Ask:
        return self._resume()

    def until(self, moment: Moment) -> Ask:
        self._require_stop()
        if moment <= self.moment:
            raise UsageError(
                f"{moment} is not ahead: the rank is at {self.moment}", hint="a replay goes forward; start it again"
            )
        return self._resume(until=str(moment))

    def pause(self) -> Ask:
        if self.phase is not Phase.RUNNING:
            raise UsageError(f"the rank is {self.phase}, not running")
        return Ask("pause")

    def stack(self) -> Ask:
        self._require_view()
        return Ask("stack")

    def stack_known(self, frames: list[dict[str, Any]]) -> None:
        """Takes in an answer to `stack`; the first time at a stop, the program's own frame is chosen."""
        known = bool(self.frames)
        self.frames = frames_of(frames)
        if not known:
            self.frame = own_frame(self.frames)

    def move(self, outwards: int) -> Frame:
        """Chooses another frame, `outwards` up the stack or down where negative."""
        self._require_view()
        chosen = self.frame + outwards
        if not self.frames:
            raise UsageError("there is no Python frame here")
        if not 0 <= chosen < len(self.frames):
            raise UsageError("that is the outermost frame" if outwards > 0 else "that is the innermost frame")
        self.frame = chosen
        return self.frames[chosen]

    def evaluate(self, text: str) -> Ask:
        """Reads the expression first: what is wrong in it is said here, with a caret."""
        expression = parse(text)
        self._require_view()
        return Ask("evaluate", {"expression": expression.text, "frame": self.frame})

    def local_names(self) -> Ask:
        self._require_view()
        return Ask("locals", {"frame": self.frame})

    def source(self, line: int | None = None, around: int = AROUND_LINES) -> Ask:
        self._require_view()
        return Ask("source", {"frame": self.frame, "around": around, "line": line})

    def peers(self) -> Ask:
        self._require_view()
        return Ask("peers")

    def tally(self) -> Ask:
        self._require_alive()
        return Ask("progress")

    def quit(self) -> Ask | None:
        """None where there is nothing left to end."""
        return Ask("quit") if self.phase in (Phase.RUNNING, Phase.STOPPED) else None

    def _resume(self, **arguments: Any) -> Ask:
        self._require_stop()
        if self._end_record is not None:
            arguments["end"] = self._end_record
        self.pending = Ask("resume", arguments, resumes=True)
        return self.pending

    def resumed(self) -> None:
        """The agent took the last `resume`."""
        self.phase = Phase.RUNNING
        self.frames, self.frame = (), 0

    def _require_alive(self) -> None:
        if self.phase is Phase.FINISHED:
            raise UsageError("the program has ended", hint="quit, and start the replay again")
        if self.phase is Phase.LOST:
            raise UsageError(f"the rank is gone: {self.lost_because}", hint="quit, and start the replay again")

    def _require_stop(self) -> None:
        self._require_alive()
        if self.phase is not Phase.STOPPED:
            raise UsageError("the rank is running", hint="wait until it stops")

    def _require_view(self) -> None:
        """A thread of the rank waits for questions: everywhere but where a restored rank stands at first."""
        self._require_stop()
        if self.visited[-1].reason == PARKED:
            raise UsageError("the rank is as it was captured; nothing can be looked at yet", hint="go on first: next")
