"""Times of operators by the samples of OPS. A family is fitted when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.model.meanwhile import working
from prismdbg.model.plurals import counted
from prismdbg.predict.fit.added import Added
from prismdbg.predict.fit.regressor import LEAST, Regressor, fitted
from prismdbg.predict.operators.work import Work
from prismdbg.predict.samples.program_operators import MODEL_ITEM_BYTES, calls_of, is_of_program
from prismdbg.predict.samples.samples import Phase, Samples

_BACKWARD = 2.0  # of a family that was not sampled, over its forward pass
_CLEAN = "res_add"  # its kernel only moves bytes, and each of them once
_EXACT = (_CLEAN, "gelu", "layernorm")  # kernels that read and write as often as is counted


@dataclass(slots=True, kw_only=True)
class Doubts:
    """outside: shapes that no sample is near, with what is outside. unsampled: families of which OPS has
    nothing, or too little for a fit, with how their times were estimated. short_share: of the computation, what is in
    operators so short that their launches may take longer."""

    outside: dict[str, str] = field(default_factory=dict)
    unsampled: dict[str, str] = field(default_factory=dict)
    short_share: float = 0.0

    def add(self, more: Doubts) -> None:
        self.outside |= more.outside
        self.unsampled |= more.unsampled


class OperatorTimes:
    def __init__(self, samples: Mapping[str, Samples]) -> None:
        self._families: dict[str, list[Samples]] = {}
        for one in samples.values():
            self._families.setdefault(one.work.family, []).append(one)
        self._fitted: dict[tuple[str, Phase], Regressor] = {}
        self._known: dict[tuple[tuple[object, ...], Phase], tuple[float, Doubts]] = {}
        self._moving: tuple[str, Added] | None = None
        self.is_of_program = is_of_program(samples)
        of_operators = (one.gpu for one in samples.values() if not one.is_collective)
        self.gpu = next(filter(None, of_operators), "")  # OPS is of one
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
        key = (work.identity(0), phase)
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
        return [(call, Phase.WHOLE) for call in calls] or [(self._wider(work), phase)]

    def _wider(self, work: Work) -> Work:
        """With the bytes of values as they were sampled."""
        factor, backward = self.value_bytes / MODEL_ITEM_BYTES, work.backward_bytes
        wider = None if backward is None else backward * factor
        return replace(work, moved_bytes=work.moved_bytes * factor, backward_bytes=wider)

    def _estimate(self, work: Work, phase: Phase) -> tuple[float, Doubts]:
        if (sampled := self._samples(work.family, phase)) < LEAST:
            few = f"OPS has {counted(sampled, 'sample')} of it, and a fit needs {LEAST}"
            why = few if sampled else "OPS has no samples of it"
            rate, time_ns = self._unsampled(work, phase)
            return time_ns, Doubts(
                unsampled={work.family: f"{work.family}, estimated by its bytes at the {rate}: {why}"}
            )
        regressor = self._regressor(work.family, phase)
        asked = work.backward() if phase is Phase.BACKWARD else work
        outside = regressor.hull.outside(asked)[0]
        doubts = Doubts(outside={work.shape(0): outside}) if outside else Doubts()
        return float(regressor.time_ns(asked)[0]), doubts

    def _regressor(self, family: str, phase: Phase) -> Regressor:
        if (family, phase) not in self._fitted:
            with working() as tell:
                tell(f"fitting the times of {family}, {phase}: {len(self._fitted)} fitted so far")
                self._fitted[family, phase] = fitted([s for s in self._families[family] if phase in s.times_ns], phase)
        return self._fitted[family, phase]

    def _unsampled(self, work: Work, phase: Phase) -> tuple[str, float]:
        """Whose rate it is, and the time."""
        if self._moving is None:
            self._moving = self._moves()
        factor = _BACKWARD if phase is Phase.BACKWARD and work.backward_bytes is None else 1.0
        moved = work.backward() if phase is Phase.BACKWARD else work
        rate, added = self._moving
        return rate, float(added.time_ns(replace(moved, flops=0 * moved.flops))[0]) * factor

    def _moves(self) -> tuple[str, Added]:
        """What moving bytes takes: what a residual addition takes for as many. Without one, the fastest operator counts
        of which all passes are counted; the others move more, so the median of all is the last resort."""
        if self._samples(_CLEAN, Phase.FORWARD) >= LEAST:
            return f"rate of {_CLEAN}", self._regressor(_CLEAN, Phase.FORWARD).added
        ns_a_byte = self._ns_a_byte()
        exact = [family for family in _EXACT if family in ns_a_byte]
        fastest = min(exact, key=ns_a_byte.__getitem__, default="")
        byte_ns = ns_a_byte[fastest] if fastest else median(ns_a_byte.values())
        rate = f"rate of {fastest}" if fastest else "median rate of operators"
        return rate, Added(flop_ns=0.0, byte_ns=byte_ns, call_ns=0.0)

    def _ns_a_byte(self) -> dict[str, float]:
        """Of the families that only move bytes, in the median of their shapes. UsageError where there is none."""
        found = {
            family: median(
                float(np.median(times / one.work.moved_bytes))
                for one in samples
                for phase, times in one.times_ns.items()
                if phase is not Phase.BACKWARD
            )
            for family, samples in self._families.items()
            if self._only_moves(samples)
        }
        if not found:
            raise UsageError(
                "OPS contains no operator that only moves bytes, so operators without samples cannot be estimated",
                hint="sample a norm, an activation or a residual addition, too",
            )
        return found

    @staticmethod
    def _only_moves(samples: Sequence[Samples]) -> bool:
        return all(
            not one.work.flops.any() and one.work.has_tiles and set(one.times_ns) != {Phase.BACKWARD} for one in samples
        )
