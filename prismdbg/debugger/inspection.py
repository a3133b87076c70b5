"""What is asked of a rank that stands: values, stack, source, names, peers, and every watch. Moves nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prismdbg.debugger.arrivals import Arrivals, with_arrivals, with_hang
from prismdbg.debugger.driver import Driver
from prismdbg.errors import PrismError, RankLost
from prismdbg.expr.parser import parse
from prismdbg.model.breakpoints import StopReason
from prismdbg.model.collective import Frame
from prismdbg.session import answers
from prismdbg.session.answers import Answer
from prismdbg.session.breakpoints import HELD
from prismdbg.session.frames import event_names, frames_of, own_frame, own_names
from prismdbg.session.line import Line, Verb
from prismdbg.session.session import AROUND_LINES, Ask, Phase
from prismdbg.session.watches import Watch, Watched

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherThread:
    """`name` is empty where Python did not start it. `frames`: innermost first."""

    number: int
    name: str
    frames: tuple[Frame, ...]


class Inspection:
    """`trace`: sees to it that the rank is traced up to where it stands."""

    def __init__(self, driver: Driver, trace: Callable[[], None], arrivals: Arrivals | None = None) -> None:
        self._driver = driver
        self._trace = trace
        self._arrivals = arrivals
        self._session = driver.session

    def verbs(self) -> dict[Verb, Callable[[Line], Answer]]:
        return {
            Verb.INFO: lambda _: self.info(),
            Verb.UP: lambda line: self._moved(line.number or 1),
            Verb.DOWN: lambda line: self._moved(-(line.number or 1)),
            Verb.LIST: lambda line: answers.Source(source=self.source(line.number)),
            Verb.PRINT: lambda line: answers.Value(text=line.text, value=self.value(line.text)),
            Verb.STATS: lambda line: answers.Value(text=line.text, value=self.value(line.text), only_stats=True),
            Verb.DIFF: self._difference,
            Verb.LOCALS: lambda _: answers.Names(names=own_names(self.local_names())),
            Verb.PEERS: lambda _: answers.Peers(peers=self.peers()),
        }

    def arrived(self, *, beginning: bool = False, stops: tuple[int, ...] = ()) -> answers.Arrived:
        """Where the rank is now, with every watch. `stops`: whose hit it went back to."""
        session = self._session
        stop = session.arrives(stops)
        if stop is not None:
            session.visits.arrive(stop.position)
        can_look = stop is not None and stop.reason != StopReason.PARKED
        watched = tuple(self.watched(watch) for watch in session.watches.all) if can_look else ()
        return answers.Arrived(
            phase=session.phase, moment=session.moment, stop=stop, beginning=beginning, watched=watched
        )

    def watched(self, watch: Watch) -> Watched:
        try:
            ask = self._session.evaluate(watch.text)
            self.know_frames()
            arguments = {**ask.arguments, "frame": self._session.frame, "digest": True}
            value = self._driver.question(Ask(ask.verb, arguments))["value"]
        except RankLost:
            raise
        except PrismError as error:
            return Watched(number=watch.number, text=watch.text, error=error.bare)
        return self._session.watches.seen(watch, dict(value))

    def stack(self) -> answers.Stack:
        session = self._session
        frames, note = session.other_frames
        if frames:
            return answers.Stack(frames=frames, chosen=own_frame(frames), note=note)
        session.stack_known(self._driver.question(session.stack())["frames"])
        return answers.Stack(frames=session.frames, chosen=session.frame)

    def other_threads(self) -> tuple[OtherThread, ...]:
        """The program's threads beside the one that stands at the stop."""
        found = self._driver.question(self._session.threads())["threads"]
        return tuple(
            OtherThread(number=int(each["thread"]), name=str(each["name"]), frames=frames_of(each["frames"]))
            for each in found
        )

    def source(self, line: int | None = None, around: int = AROUND_LINES) -> Json:
        self.know_frames()
        return self._driver.question(self._session.source(line, around))

    def value(self, text: str) -> Json:
        self._session.evaluate(text)  # refused before anything is asked
        self.trace_for(text)
        return self.value_untraced(text)

    def value_untraced(self, text: str) -> Json:
        """As it is known without a trace."""
        self._session.evaluate(text)
        self.know_frames()
        return dict(self._driver.question(self._session.evaluate(text))["value"])

    def tensor_bytes(self, text: str, offset: int, count: int) -> Json:
        """Of a tensor's elements, in base64."""
        self._session.evaluate(text)
        self.know_frames()
        return dict(self._driver.question(self._session.tensor_bytes(text, offset, count)))

    def trace_for(self, text: str) -> None:
        """Only a rank that is traced knows what is allocated; `total` may be a name of the program's."""
        if "allocated" in parse(text).names and not self._driver.traces:
            self._trace()

    def local_names(self) -> tuple[Json, ...]:
        """The chosen frame's, then the event's (`from` is `stop`): what expressions may begin with."""
        self.know_frames()
        return tuple(self._driver.question(self._session.local_names())["locals"])

    def peers(self) -> Json:
        """With each one's arrival, where the run is there to be read."""
        stop = self._session.stop
        parked = stop is not None and stop.reason == StopReason.PARKED and self._session.astray is None
        hung = self._arrivals.in_hang() if parked and self._arrivals is not None else None
        if hung is not None:
            return hung
        found = self._driver.question(self._session.peers())
        if self._arrivals is None or stop is None:
            return found
        ranks = [int(member["rank"]) for member in found["members"]]
        identity = str(stop.collective.get("identity", ""))
        found = with_hang(found, identity, self._arrivals.hang)
        return with_arrivals(found, self._arrivals.of(identity, ranks))

    def tally(self) -> Json:
        return dict(self._driver.question(self._session.tally())["tally"])

    def choose_frame(self, outwards: int) -> answers.Stack:
        self.know_frames()
        self._session.move(outwards)
        return answers.Stack(frames=self._session.frames, chosen=self._session.frame)

    def info(self) -> answers.Info:
        session = self._session
        ended = session.finished or session.hung
        tally = ended.tally if ended is not None else self.tally()
        return answers.Info(
            phase=session.phase,
            moment=session.moment,
            tally=tally,
            stop=session.stop,
            finished=session.finished if session.phase is Phase.FINISHED else None,
            visited=tuple(place.told for place in session.visits.moments),
        )

    def _moved(self, outwards: int) -> Answer:
        self.choose_frame(outwards)
        return answers.Source(source=self.source(None, 2))

    def _difference(self, line: Line) -> Answer:
        self._session.difference(line.text)
        self.know_frames()
        found = self._driver.question(self._session.difference(line.text))
        return answers.Differs(
            text=line.text,
            equal=bool(found["equal"]),
            differing=int(found["differing"]),
            elements=int(found["elements"]),
            largest=found["largest"],
            value=found.get("value"),
        )

    def event_names(self) -> frozenset[str]:
        """Of the event that the rank stands at, by which expressions know it."""
        return event_names(self.local_names()) | HELD

    def know_frames(self) -> None:
        """The program's own frame is looked from, also before anybody asked for the stack."""
        if not self._session.frames:
            self.stack()
