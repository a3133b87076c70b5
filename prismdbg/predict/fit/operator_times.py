"""Times of operators by the samples of OPS. A family is fitted when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.model.meanwhile import working
from prismdbg.predict.fit.added import SECOND_NS
from prismdbg.predict.fit.regressor import LEAST, Regressor, fitted
from prismdbg.predict.operators.work import Work
from prismdbg.predict.samples.program_operators import MODEL_ITEM_BYTES, calls_of, is_of_program
from prismdbg.predict.samples.samples import Phase, Samples

_BACKWARD = 2.0  # of a family that was not sampled, over its forward pass
_AS_FORWARD = ("dropout",)  # moves the same in both


@dataclass(slots=True, kw_only=True)
class Doubts:
    """outside: shapes that no sample is near, with what is outside. unsampled: families of which OPS has
    nothing, or too little for a fit, with how their times were estimated."""

    outside: dict[str, str] = field(default_factory=dict)
    unsampled: dict[str, str] = field(default_factory=dict)

    def add(self, more: Doubts) -> None:
        self.outside |= more.outside
        self.unsampled |= more.unsampled


class OperatorTimes:
    def __init__(self, samples: Mapping[str, Samples]) -> None:
        self._families: dict[str, list[Samples]] = {}
        for one in samples.values():
            self._families.setdefault(one.work.family, []).append(one)
        self._fitted: dict[tuple[str, Phase], Regressor] = {}
        self._known: dict[tuple[str, Phase], tuple[float, Doubts]] = {}
        self._rates: dict[frozenset[str], float] = {}  # by the names of a tensor's sizes
        self.is_of_program = is_of_program(samples)
        self.doubts = Doubts()

    def of_another_job(self) -> OperatorTimes:
        """The same times with doubts of their own. What was fitted and estimated before is not worked out again."""
        times = copy(self)
        times.doubts = Doubts()
        return times

    @property
    def value_bytes(self) -> int:
        """Of one element: programs are sampled in 32 bits (`operators.work_of`), published operators are of 16."""
        return 4 if self.is_of_program else MODEL_ITEM_BYTES

    def time_ns(self, work: Work, phase: Phase) -> int:
        """Of one shape."""
        return max(round(sum(self._sampled_ns(*part) for part in self._parts(work, phase))), 1)

    def _sampled_ns(self, work: Work, phase: Phase) -> float:
        key = (work.shape(0), phase)
        if key not in self._known:
            self._known[key] = self._estimate(work, phase)
        time_ns, doubts = self._known[key]
        self.doubts.add(doubts)  # also of a time that another job has asked for before
        return time_ns

    def is_sampled(self, work: Work, phase: Phase) -> bool:
        return all(self._samples(part.family, of) >= LEAST for part, of in self._parts(work, phase))

    def _samples(self, family: str, phase: Phase) -> int:
        """How many shapes of it were timed in that phase."""
        return sum(len(one.work) for one in self._families.get(family, ()) if phase in one.times_ns)

    def _parts(self, work: Work, phase: Phase) -> list[tuple[Work, Phase]]:
        """What the samples are of: the operator itself, or what PyTorch calls for it."""
        if not self.is_of_program:
            return [(work, phase)]
        calls = calls_of(work, phase)
        own_bytes = work.moved_bytes * self.value_bytes / MODEL_ITEM_BYTES
        return [(call, Phase.WHOLE) for call in calls] or [(replace(work, moved_bytes=own_bytes), phase)]

    def _estimate(self, work: Work, phase: Phase) -> tuple[float, Doubts]:
        if (sampled := self._samples(work.family, phase)) < LEAST:
            why = f"a fit needs {LEAST} samples, OPS has {sampled}" if sampled else "nothing of it was sampled"
            said = f"{work.family}: its bytes at the median rate of operators on such tensors; {why}"
            return self._unsampled(work, phase), Doubts(unsampled={work.family: said})
        regressor = self._regressor(work.family, phase)
        outside = regressor.hull.outside(work)[0]
        doubts = Doubts(outside={work.shape(0): outside}) if outside else Doubts()
        return float(regressor.time_ns(work)[0]), doubts

    def _regressor(self, family: str, phase: Phase) -> Regressor:
        if (family, phase) not in self._fitted:
            with working() as tell:
                tell(f"fitting the times of {family}, {phase}: {len(self._fitted)} fitted so far")
                self._fitted[family, phase] = fitted([s for s in self._families[family] if phase in s.times_ns], phase)
        return self._fitted[family, phase]

    def _unsampled(self, work: Work, phase: Phase) -> float:
        """Its bytes at the median rate of the sampled operators that only move bytes: the middle one is as likely too
        slow as too fast, the best one is too fast."""
        sizes = frozenset(work.sizes)
        if sizes not in self._rates:
            self._rates[sizes] = self._rate(sizes)
        factor = _BACKWARD if phase is Phase.BACKWARD and work.family not in _AS_FORWARD else 1.0
        return float(work.moved_bytes[0]) / self._rates[sizes] * SECOND_NS * factor

    def _rate(self, sizes: frozenset[str]) -> float:
        """Of those on tensors with the same sizes, else of all."""
        rates = [
            (frozenset(one.work.sizes), float(np.median(one.work.moved_bytes / times)) * SECOND_NS)
            for family in self._families.values()
            for one in family
            for phase, times in one.times_ns.items()
            if phase is not Phase.BACKWARD and not one.work.flops.any() and one.work.has_tiles
        ]
        alike = [rate for others, rate in rates if others == sizes]
        if not rates:
            raise UsageError(
                "OPS contains no operator that only moves bytes, so operators without samples cannot be estimated",
                hint="sample a norm, an activation or a residual addition, too",
            )
        return median(alike or [rate for _, rate in rates])
