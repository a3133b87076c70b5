"""Measured times of one operator at many shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from prismdbg.predict.operators.operators import PLACES, work_of
from prismdbg.predict.operators.work import Floats, Work


class Phase(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    WHOLE = "whole"  # an optimizer's step, a collective


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """`columns`: the shapes, by name. times_ns: by phase. Every array has shape (n,). gpu: empty where the
    names of the files do not say it."""

    operator: str
    columns: Mapping[str, Floats]
    times_ns: Mapping[Phase, Floats]
    gpu: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.times_ns.values())))

    @property
    def is_collective(self) -> bool:
        return set(self.columns) >= PLACES

    @property
    def work(self) -> Work:
        return work_of(self.operator, self.columns)

    def work_in(self, phase: Phase) -> Work:
        return self.work.backward() if phase is Phase.BACKWARD else self.work

    def chosen(self, rows: Floats) -> Samples:
        """`rows`: a mask, or places."""
        return replace(
            self,
            columns={name: column[rows] for name, column in self.columns.items()},
            times_ns={phase: times[rows] for phase, times in self.times_ns.items()},
        )
