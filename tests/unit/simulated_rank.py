"""A rank that is a list of collectives, with the way back: what `Debugger` is tested over, in memory and in no time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from prismdbg.errors import FacilityError, RankLost, WaitTimeout
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentError, UnknownRequest
from prismdbg.runtime.rank_folder import RankFolder
from prismdbg.session.checkpoint import Checkpoint

Json = dict[str, Any]
NAMES = [
    {"from": "local", "name": "x", "type": "torch.Tensor", "text": "float32[1] cpu"},
    {"from": "stop", "name": "step", "type": "int", "text": "0"},
    {"from": "stop", "name": "out", "type": "list", "text": "list of 1"},
]
TENSOR: Json = {
    "kind": "tensor", "dtype": "float32", "shape": [1], "device": "cpu", "requires_grad": False, "stats": None,
}  # fmt: skip
ASLEEP = [
    {"filename": "/job/data.py", "line": 27, "name": "load"},
    {"filename": "/job/train.py", "line": 9, "name": "main"},
]
OPS = ("broadcast", "all_reduce", "barrier")


@dataclass(frozen=True, slots=True)
class Place:
    """`at`: the collective that the rank stands at, by its place in the list; -1 before the first. event: the n-th
    event after it, of two for each operator: its begin and what it allocates; counted, before: what the rank tells of
    that. raised: at an exception, behind all events."""

    at: int = -1
    number: int = 1
    reason: str = "start"
    answered: bool = False
    event: int = 0
    counted: int = 0
    before: int = 0
    raised: bool = False

    @property
    def op(self) -> int:
        return (self.event + 1) // 2

    @property
    def is_allocation(self) -> bool:
        return self.event > 0 and self.event % 2 == 0

    @property
    def order(self) -> tuple[int, bool, int, bool]:
        return self.at, self.raised, self.event, self.answered


@dataclass(slots=True)
class SimulatedRank:
    """Steps of so many collectives each. `spaced`: at every so many the rank would stop for an image.

    weather: what a digest depends on besides the place; not in an image, as a clock is not. parked: it begins as a
    restored process does, with so many collectives `behind` it. ops: operators after each collective, which allocate a
    block each. writes: the operators and collectives that write x. nan_from: where x and what is sent are NaN from.
    """

    steps: int = 4
    per_step: int = 3
    spaced: int = 0
    can_save: bool = True
    weather: str = "fair"
    parked: bool = False
    first: Moment | None = None  # by which the origin is called, once it was said
    behind: int = 0
    can_trace: bool = True
    traced: bool = False
    hangs: bool = False  # after its last collective
    holds_gil: bool = False  # while it does
    lacks: int = 0  # recorded collectives that it does not issue
    ops: int = 0
    steps_last: bool = False  # after its last collective comes an optimizer step
    ends_log: bool = False  # its last collective is not in the recording
    diverges: bool = False  # at its last collective
    raises: bool = False  # after its last collective
    dies: bool = False  # at its end
    tells_hits: bool = True  # also where the program ends, as an older rank does not
    writes: tuple[Moment, ...] = ()
    nan_from: Moment | None = None
    _runs: bool = False
    asked: list[tuple[str, Json]] = field(default_factory=list)
    alive: bool = True
    place: Place = field(default_factory=Place)
    stops: list[Json] = field(default_factory=list)
    saved: dict[int, Place] = field(default_factory=lambda: {0: Place()})
    sides: dict[int, str] = field(default_factory=dict)
    saved_traced: dict[int, bool] = field(default_factory=dict)
    returns: list[int] = field(default_factory=list)
    saves: list[int] = field(default_factory=list)
    _events: deque[Json] = field(default_factory=deque)
    _told: Json = field(default_factory=dict)
    _next: int = 1

    @property
    def own(self) -> RankFolder:
        raise FacilityError("nobody keeps a folder of this rank")

    @property
    def moments(self) -> list[Moment]:
        return [Moment(step, number) for step in range(self.steps) for number in range(1, self.per_step + 1)]

    def __post_init__(self) -> None:
        if self.parked:
            self.place = Place(at=self.behind - 1, reason="parked")
            self.saved = {0: self.place}

    # what an agent's client does

    def ask(
        self, verb: str, *, timeout_s: float = 30.0, given_up: Callable[[], bool] | None = None, **arguments: Any
    ) -> Json:
        self.asked.append((verb, arguments))
        if not self.alive or verb == "quit":
            raise RankLost("the connection closed")
        known: dict[str, Callable[[Json], Json]] = {
            "progress": self._progress,
            "resume": self._resume,
            "stops": self._take_stops,
            "history": self._history,
            "trace": self._trace,
            "microscope": lambda _: {},
            "stack": lambda _: {"frames": [{"filename": "/job/train.py", "line": 7, "name": "main"}]},
            "evaluate": lambda asked: {"value": {**self._value(asked["expression"]), "digest": str(self.place.at)}},
            "locals": lambda _: {"locals": NAMES},
            "stacks": lambda _: {
                "threads": [{"name": "Thread-1", "frames": []}, {"name": "MainThread", "frames": ASLEEP}]
            },
        }
        if self._runs and self.holds_gil:
            raise WaitTimeout(f"waited {timeout_s:g} s for the answer to {verb!r}")
        if verb not in known:
            raise UnknownRequest(f"unknown request to the agent: {verb!r}")
        return known[verb](arguments)

    def next_event(self, timeout_s: float | None, what: str) -> Json:
        if not self.alive:
            raise RankLost("the connection closed")
        if not self._events:
            raise WaitTimeout(f"waited for {what}")
        return self._events.popleft()

    # what a travel does

    @property
    def client(self) -> Any:
        return self

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        found = [
            Checkpoint(number=n, moment=self._kept_at(n, p), size_bytes=1000, cost_s=0.0, side=self.sides.get(n, ""))
            for n, p in self.saved.items()
        ]
        return tuple(sorted(found, key=lambda kept: (kept.position, kept.number)))

    def save(self, moment: Moment, number: int | None = None, side: str = "") -> Checkpoint:
        if not self.can_save:
            raise FacilityError("no criu here")
        assert moment == self._here
        number = number or self._next
        assert number not in self.saved
        self.saved[number] = self.place
        self.sides[number] = side
        self.saves.append(number)
        self.saved_traced[number] = self.traced
        self._next = max(self._next, number + 1)
        return Checkpoint(number=number, moment=moment, size_bytes=1000, cost_s=0.0, side=side)

    def stands_first_at(self, moment: Moment) -> None:
        self.first = moment

    def keep_origin(self) -> None:
        return None

    def return_to(self, number: int) -> None:
        self.place, self.alive, self._runs = self.saved[number], True, False
        self.returns.append(number)
        self._events.clear()
        self._told = {}
        self._found = None
        self.stops = []
        self.traced = False

    def forget(self, number: int) -> None:
        del self.saved[number]

    def _kept_at(self, number: int, place: Place) -> Moment:
        """The origin's is that of the first collective to come, until it was said."""
        if not number and self.first is not None:
            return self.first
        return self._moment(place.at + 1) if self.behind and not number else self._moment_of(place)

    # the program

    def kill(self) -> None:
        self.alive = False

    def _moment(self, at: int) -> Moment:
        return self.moments[at] if at >= 0 else Moment(0)

    def _moment_of(self, place: Place) -> Moment:
        """Of an exception that of the last collective, as the counters have it."""
        if place.raised:
            return self._end
        if place.event:
            at = self._moment(place.at)
            return Moment(at.step, at.collective, place.op)
        return self._moment(place.at)

    @property
    def _here(self) -> Moment:
        return self._moment_of(self.place)

    @property
    def _end(self) -> Moment:
        return Moment(self.steps) if self.steps_last else self.moments[-1]

    def _event(self, place: Place) -> Json:
        """What the rank stands at."""
        if place.raised or place.at < 0:
            return {}
        if not place.event:
            return self._call(place.at)
        call: Json = {"profiling_name": "aten::mul", "process_group": "", "size_bytes": 64, "module": ""}
        if place.is_allocation:
            return {**call, "kind": "allocation", "block": self._block(place)}
        return {**call, "kind": "op"}

    def _block(self, place: Place) -> int:
        return place.at * self.ops + place.op

    def _call(self, at: int) -> Json:
        return {"profiling_name": OPS[at % len(OPS)], "process_group": "0"} if at >= 0 else {}

    def _progress(self, _: Json) -> Json:
        place = self.place
        return {
            "moment": str(self._here),
            "stopped": None if self._runs else place.reason,
            "number": place.number,
            "collective": self._event(place) if place.reason != "parked" else {},
            "tally": self._tally(),
            **self._stands(),
            **self._told,
        }

    def _tally(self) -> Json:
        there = self.place.at + (self.place.answered or self.place.event > 0 or self.place.raised)
        return {
            "compared": there,
            "fingerprints": 0,
            "synthesized": 0,
            "missing": len(self.moments) - there + self.lacks,
        }

    def _value(self, text: str) -> Json:
        """`x` is a tensor, everything else a number."""
        if text.startswith("not finite("):
            return {"kind": "scalar", "type": "bool", "value": self._is_nan()}
        return TENSOR if text == "x" else {"kind": "scalar", "type": "int", "value": 1}

    def _is_nan(self) -> bool:
        return self.nan_from is not None and self.nan_from <= self._here

    def _take_stops(self, arguments: Json) -> Json:
        self.stops = arguments["stops"]
        return {}

    def _trace(self, arguments: Json) -> Json:
        if not self.can_trace:
            raise AgentError("there is no tracer here")
        self.traced = bool(arguments.get("on", self.traced))
        return {"on": self.traced}

    def _history(self, arguments: Json) -> Json:
        """Answered collectives before here."""
        passed = self.place.event > 0 or self.place.raised
        past = self.moments[: max(self.place.at + passed, 0)]
        return {"moments": [str(moment) for moment in past[-arguments["count"] :]]}

    def _resume(self, arguments: Json) -> Json:
        if not arguments.get("continued"):
            self._aim, self._noted, self._count = arguments, [], arguments.get("count", 0)
            self._left = arguments.get("events", {}).get("count", 0)
            self._aimed_at, self._found = self.place, None
        while (place := self._ahead()) is not None:
            self.place = place
            self._look_for_writer()
            if place.raised:
                reason, hit = self._raises(), []
            elif place.event:
                reason, hit = self._at_event(arguments)
            else:
                reason, hit = self._at_collective(arguments)
            if reason:
                return self._stop(reason, stops=hit)
        if self.hangs:
            self._runs = True
            return {}
        if self.dies:
            self.alive = False
            return {}
        tally = {"compared": len(self.moments), "fingerprints": 0, "synthesized": 0}
        told = {"hits": self._noted} if self.tells_hits else {}
        self._events.append(
            {"event": "finished", "code": int(self.raises), "moment": str(self._end), "tally": tally, **told}
        )
        return {}

    def _ahead(self) -> Place | None:
        """What comes next; events only where they are traced."""
        place, last = self.place, self.place.at + 1 == len(self.moments)
        if place.raised:
            return None
        if place.at >= 0 and not place.answered and not place.event and place.reason in ("end of the log", "diverged"):
            return replace(place, answered=True)
        if self.traced and place.at >= 0 and place.event < 2 * self.ops:
            every = bool(self._aim.get("events"))
            return replace(place, event=place.event + 1, answered=False, counted=place.counted + every)
        if not last:
            asked = (self.ends_log or self.diverges) and place.at + 2 == len(self.moments)
            return replace(place, at=place.at + 1, event=0, counted=0, before=place.counted, answered=not asked)
        return replace(place, raised=True, answered=False) if self.raises else None

    def _raises(self) -> str:
        self._events.append(
            {"event": "exception", "moment": str(self._here), "type": "ValueError", "text": "", "traceback": []}
        )
        return "exception" if self._aim["stops"] != "off" else ""

    def _at_event(self, arguments: Json) -> tuple[str, list[int]]:
        aim, place, wanted = self._aim, self.place, self._aim.get("events", {})
        hit = [stop.get("number", 0) for stop in self.stops if stop["kind"] == "allocation" and place.is_allocation]
        if aim["stops"] == "note":
            self._noted += [{"moment": str(self._here), "stop": each, "block": self._block(place)} for each in hit]
        if "count" in wanted:
            self._left -= 1
            if not self._left:
                return "step", []
        elif place.is_allocation:
            if wanted.get("block") == self._block(place):
                return "until", []
        elif "until" in wanted and self._here >= Moment.parse(wanted["until"]):
            return "until", []
        return ("stop", hit) if hit and aim["stops"] == "apply" else ("", [])

    def _at_collective(self, arguments: Json) -> tuple[str, list[int]]:
        aim, moment = self._aim, self.moments[self.place.at]
        if not self.place.answered:
            if self.diverges:
                self._events.append({"event": "diverged", "moment": str(moment), "differences": []})
                return "diverged", []
            self._events.append({"event": "end_of_log", "moment": str(moment), "tally": self._tally()})
            return "end of the log", []
        if self.place.at + 1 == len(self.moments) and not self.lacks:
            self._events.append({"event": "all_compared", "moment": str(moment), "tally": self._tally()})
        hit = [stop.get("number", 0) for stop in self.stops if self._hits(stop)]
        if aim["stops"] == "note":
            self._noted += [{"moment": str(moment), "stop": number} for number in hit]
        self._count -= 1
        if "count" in aim.get("events", {}):
            return "step", []
        if "until" in aim and moment >= Moment.parse(aim["until"]):
            return "until", hit if aim["stops"] == "apply" else []
        if self._count == 0:
            return "next", []
        if hit and aim["stops"] == "apply":
            return "stop", hit
        if self.spaced and "pause_after_s" in arguments and (self.place.at + 1) % self.spaced == 0:
            return "spacing", []
        return "", []

    def _hits(self, stop: Json) -> bool:
        match stop["kind"]:
            case "collective":
                if stop.get("condition", "").startswith("not finite("):
                    return self._is_nan()
                return stop.get("op") in (None, self._call(self.place.at)["profiling_name"])
            case "change":
                before = self._moment(self.place.at - 1) if self.place.at else Moment(0)
                return any(before < written <= self._here for written in self.writes)
            case "nan":
                return self._is_nan()
        return False

    def _look_for_writer(self) -> None:
        """An operator's write is seen when the next one begins, a collective's when it is answered."""
        if "writer_of" in self._aim.get("events", {}) and self.traced:
            end = Moment(self._here.step, self._here.collective, 2 * self.ops) if self.place.raised else self._here
            seen = [at for at in self.writes if self._began < at < end or (at == end and self.place.answered)]
            frames = [{"filename": "/job/train.py", "line": 7, "name": "main"}]
            if seen:
                self._found = {"op": "aten::mul", "moment": str(seen[-1]), "frames": frames}

    @property
    def _began(self) -> Moment:
        return self._moment_of(self._aimed_at)

    _aim: Json = field(default_factory=dict)
    _noted: list[Json] = field(default_factory=list)
    _count: int = 0
    _left: int = 0
    _aimed_at: Place = field(default_factory=Place)
    _found: Json | None = None

    def _stands(self) -> Json:
        place = self.place
        return {"answered": place.answered, "events": place.counted, "events_before": place.before}

    def _stop(self, reason: str, **more: Any) -> Json:
        self.place = replace(self.place, number=self.place.number + 1, reason=reason)
        digests = {"sent": str(self.place.order), "torch": f"{self.weather} {self.place.order}"}
        self._told = {"hits": self._noted, **more}
        self._told |= {"place": {} if self.place.raised else digests}
        self._told |= {"writer": self._found} if self._found is not None else {}
        told = {"number": self.place.number, "moment": str(self._here), "collective": self._event(self.place)}
        self._events.append({"event": "stopped", "reason": reason, **told, **self._stands(), **self._told})
        return {}
