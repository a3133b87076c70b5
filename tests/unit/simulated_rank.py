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
    """`at`: the collective that the rank stands at, by its place in the list; -1 before the first."""

    at: int = -1
    number: int = 1
    reason: str = "start"


@dataclass(slots=True)
class SimulatedRank:
    """Steps of so many collectives each. `spaced`: at every so many the rank would stop for an image.

    weather: what a digest depends on besides the place; not in an image, as a clock is not. parked: it begins as a
    restored process does, with so many collectives `behind` it.
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
    _runs: bool = False
    asked: list[tuple[str, Json]] = field(default_factory=list)
    alive: bool = True
    place: Place = field(default_factory=Place)
    stops: list[Json] = field(default_factory=list)
    saved: dict[int, Place] = field(default_factory=lambda: {0: Place()})
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
            Checkpoint(number=n, moment=self._kept_at(n, p), size_bytes=1000, cost_s=0.0) for n, p in self.saved.items()
        ]
        return tuple(sorted(found, key=lambda kept: (kept.moment, kept.number)))

    def save(self, moment: Moment, number: int | None = None) -> Checkpoint:
        if not self.can_save:
            raise FacilityError("no criu here")
        assert moment == self._moment(self.place.at)
        number = number or self._next
        assert number not in self.saved
        self.saved[number] = self.place
        self.saves.append(number)
        self.saved_traced[number] = self.traced
        self._next = max(self._next, number + 1)
        return Checkpoint(number=number, moment=moment, size_bytes=1000, cost_s=0.0)

    def stands_first_at(self, moment: Moment) -> None:
        self.first = moment

    def keep_origin(self) -> None:
        return None

    def return_to(self, number: int) -> None:
        self.place, self.alive, self._runs = self.saved[number], True, False
        self.returns.append(number)
        self._events.clear()
        self._told = {}
        self.stops = []
        self.traced = False

    def forget(self, number: int) -> None:
        del self.saved[number]

    def _kept_at(self, number: int, place: Place) -> Moment:
        """The origin's is that of the first collective to come, until it was said."""
        if not number and self.first is not None:
            return self.first
        return self._moment(place.at + 1 if self.behind and not number else place.at)

    # the program

    def kill(self) -> None:
        self.alive = False

    def _moment(self, at: int) -> Moment:
        return self.moments[at] if at >= 0 else Moment(0)

    def _call(self, at: int) -> Json:
        return {"profiling_name": OPS[at % len(OPS)], "process_group": "0"} if at >= 0 else {}

    def _progress(self, _: Json) -> Json:
        place = self.place
        return {
            "moment": str(self._moment(place.at)),
            "stopped": None if self._runs else place.reason,
            "number": place.number,
            "collective": self._call(place.at) if place.reason != "parked" else {},
            "tally": self._tally(),
            **self._told,
        }

    def _tally(self) -> Json:
        there = self.place.at + 1
        return {
            "compared": there,
            "fingerprints": 0,
            "synthesized": 0,
            "missing": len(self.moments) - there + self.lacks,
        }

    def _value(self, text: str) -> Json:
        """`x` is a tensor, everything else a number."""
        return TENSOR if text == "x" else {"kind": "scalar", "type": "int", "value": 1}

    def _take_stops(self, arguments: Json) -> Json:
        self.stops = arguments["stops"]
        return {}

    def _trace(self, arguments: Json) -> Json:
        if not self.can_trace:
            raise AgentError("there is no tracer here")
        self.traced = bool(arguments.get("on", self.traced))
        return {"on": self.traced}

    def _history(self, arguments: Json) -> Json:
        past = self.moments[: max(self.place.at, 0)]
        return {"moments": [str(moment) for moment in past[-arguments["count"] :]]}

    def _resume(self, arguments: Json) -> Json:
        if not arguments.get("continued"):
            self._aim, self._noted, self._count = arguments, [], arguments.get("count", 0)
        aim = self._aim
        while self.place.at + 1 < len(self.moments):
            self.place = replace(self.place, at=self.place.at + 1)
            moment = self.moments[self.place.at]
            if self.place.at + 1 == len(self.moments) and not self.lacks:
                self._events.append({"event": "all_compared", "moment": str(moment), "tally": self._tally()})
            hit = [
                stop.get("number", 0)
                for stop in self.stops
                if stop.get("op") in (None, self._call(self.place.at)["profiling_name"])
            ]
            if aim["stops"] == "note":
                self._noted += [{"moment": str(moment), "stop": number} for number in hit]
            self._count -= 1
            if "count" in aim.get("events", {}):
                return self._stop("step")
            if "until" in aim and moment >= Moment.parse(aim["until"]):
                return self._stop("until")
            if self._count == 0:
                return self._stop("next")
            if hit and aim["stops"] == "apply":
                return self._stop("stop", stops=hit)
            if self.spaced and "pause_after_s" in arguments and (self.place.at + 1) % self.spaced == 0:
                return self._stop("spacing")
        if self.hangs:
            self._runs = True
            return {}
        tally = {"compared": len(self.moments), "fingerprints": 0, "synthesized": 0}
        self._events.append({"event": "finished", "code": 0, "moment": str(self.moments[-1]), "tally": tally})
        return {}

    _aim: Json = field(default_factory=dict)
    _noted: list[Json] = field(default_factory=list)
    _count: int = 0

    def _stop(self, reason: str, **more: Any) -> Json:
        self.place = replace(self.place, number=self.place.number + 1, reason=reason)
        digests = {"sent": str(self.place.at), "torch": f"{self.weather} {self.place.at}"}
        self._told = {"answered": True, "place": digests, "hits": self._noted, **more}
        moment = str(self.moments[self.place.at])
        told = {"number": self.place.number, "moment": moment, "collective": self._call(self.place.at), **self._told}
        self._events.append({"event": "stopped", "reason": reason, **told})
        return {}
