"""What became of one configuration: its times, its memory, where its time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from math import comb, floor, sqrt
from typing import Any, NotRequired, TypedDict

from prismdbg.capsule import checked_json
from prismdbg.errors import CapsuleError

_SURE = 0.95
_QUANTILE = 1.96  # of the normal distribution, for `_SURE`
_COUNTED = 1000  # values, up to which binomial coefficients are added up
_FEWEST = 6  # values, of which the smallest and the largest hold their median with 95 %


class State(StrEnum):
    DONE = "done"
    IMPOSSIBLE = "impossible"  # no mesh fits
    FAILED = "failed"
    LEFT_OUT = "left out"  # by a search: predicted, and not run


class _Stored(TypedDict):
    name: str
    values: dict[str, str]
    state: str
    why: str
    mesh: str
    middle_ns: int
    iteration_ns: list[int]
    idle_share: float | None
    exposed: dict[str, float]
    late: dict[str, float]
    peak_bytes: int | None
    worth: str
    tokens: int
    message_bytes: dict[str, float]
    link_share: dict[str, float]
    computed: list[float]
    joules: float | None
    peak_watts: float | None
    doubts: NotRequired[list[str]]
    recomputed: NotRequired[float | None]


@dataclass(frozen=True, slots=True)
class Interval:
    """Nanoseconds. `middle` lies in it. is_known: a single value says nothing of how far the next one is from it,
    and some predictions were never held against a measurement."""

    middle: int
    low: int
    high: int
    is_known: bool = True

    @classmethod
    def of(cls, middle: int, values: Sequence[int]) -> Interval:
        """From six values on the 95 % interval of their median, of any distribution (by order statistics: David and
        Nagaraja, Order Statistics, 7.1); below, their range. Wide enough to hold `middle`."""
        ordered, outer = sorted([*values] or [middle]), _outside(len(values))
        low, high = min(ordered[outer], middle), max(ordered[-1 - outer], middle)
        return cls(middle, low, high, is_known=len(values) > 1)

    def overlaps(self, other: Interval) -> bool:
        """Or may: whose interval is not known is told from nobody."""
        is_known = self.is_known and other.is_known
        return not is_known or (self.low <= other.high and other.low <= self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Shares are of an iteration, of a rank on average, by mesh axis. peak_bytes: of the rank that holds most, None
    where memory was not traced. middle_ns: the time of an iteration, iteration_ns: of several
    ones, that say how sure it is. idle_share: None where it is not known what was computed; then `exposed` is not known
    either. worth: what the time rests on, doubts: what is not reliable. tokens: of one iteration, 0 where not given.

    message_bytes: of a message, on average. link_share: of the rate of its links, that messages reach. computed: the
    share of an iteration in which ranks compute, of each rank, or of so many blocks of consecutive ranks. joules: of an
    iteration, peak_watts: of a device; None where no sensor told. recomputed: the share of an
    iteration in which the backward pass computes activations again, of a prediction; None of a program that ran."""

    name: str
    values: Mapping[str, str]
    state: State
    why: str = ""
    mesh: str = ""
    middle_ns: int = 0
    iteration_ns: tuple[int, ...] = ()
    idle_share: float | None = 0.0
    exposed: Mapping[str, float] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=dict)
    peak_bytes: int | None = None
    worth: str = ""
    doubts: tuple[str, ...] = ()
    tokens: int = 0
    message_bytes: Mapping[str, float] = field(default_factory=dict)
    link_share: Mapping[str, float] = field(default_factory=dict)
    computed: tuple[float, ...] = ()
    joules: float | None = None
    peak_watts: float | None = None
    recomputed: float | None = None

    @property
    def time(self) -> Interval:
        return Interval.of(self.middle_ns, self.iteration_ns)

    @property
    def is_predicted(self) -> bool:
        return self.recomputed is not None

    @property
    def tokens_per_s(self) -> float:
        return self.tokens * 1e9 / max(self.time.middle, 1)

    def fits(self, cap_bytes: int) -> bool | None:
        """None where it is not known."""
        return None if not cap_bytes or self.peak_bytes is None else self.peak_bytes <= cap_bytes

    def because(self, why: str) -> Result:
        return replace(self, why=why)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "state": str(self.state)}

    @classmethod
    def from_json(cls, value: object, where: str) -> Result:
        """`CapsuleError` where that is not a result."""
        stored: dict[str, Any] = {**checked_json.checked(_Stored, value, where)}
        if stored["state"] not in list(State):
            raise CapsuleError(f"{where}: state is {stored['state'][:40]!r}", hint="remove it; it is worked out again")
        known = {name: stored[name] for name in _Stored.__annotations__ if name in stored}
        return cls(
            **{
                **known,
                "state": State(stored["state"]),
                **{name: tuple(stored.get(name, ())) for name in ("iteration_ns", "computed", "doubts")},
            }
        )


def _outside(count: int) -> int:
    """How many of so many values lie outside of the interval, on each side; of many, by the normal distribution."""
    if count > _COUNTED:
        return floor((count - _QUANTILE * sqrt(count)) / 2) - 1
    outside, tail = 0, 1
    while count >= _FEWEST and 2 * (tail + comb(count, outside + 1)) <= (1 - _SURE) * 2**count:
        outside += 1
        tail += comb(count, outside)
    return outside


def fastest(results: Sequence[Result], cap_bytes: int = 0) -> list[Result]:
    """The one with the shortest time first, then those that cannot be told from it: their intervals overlap, or that of
    one of both is not known. Of those that are known not to fit into the memory, none."""
    done = [each for each in results if each.state is State.DONE and each.fits(cap_bytes) is not False]
    done.sort(key=lambda each: each.time.middle)
    return [each for each in done if each.time.overlaps(done[0].time)]


def pareto(results: Sequence[Result]) -> list[Result]:
    """Those to which no other is better in time and in memory: the fastest first."""
    known = [each for each in results if each.state is State.DONE and each.peak_bytes is not None]
    found: list[Result] = []
    for each in sorted(known, key=lambda each: (each.time.middle, each.peak_bytes)):
        if not found or (each.peak_bytes or 0) < (found[-1].peak_bytes or 0):
            found.append(each)
    return found
