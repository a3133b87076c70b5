"""Errors on shapes that no fit has seen: a fifth of them, chosen by a hash of the shape before anything was fitted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median

import numpy as np

from prismdbg.predict.fit.regressor import fitted
from prismdbg.predict.operators.work import Floats, Work
from prismdbg.predict.samples.samples import Phase, Samples

ONE_OF = 5
NARROW, WIDE = 2_560, 6_144  # widths: fitted up to the one, asked above the other, up to 3.2 times as wide


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """`signed`: of each held-out shape, predicted over measured, less 1, in percent."""

    operator: str
    phase: Phase
    columns: dict[str, Floats]
    signed: Sequence[float]

    @property
    def absolute(self) -> list[float]:
        return [abs(error) for error in self.signed]

    @property
    def mean(self) -> float:
        return mean(self.absolute)

    def where(self, **at: float) -> Errors:
        kept = np.logical_and.reduce([self.columns[name] == value for name, value in at.items()])
        return Errors(
            operator=self.operator,
            phase=self.phase,
            columns={name: column[kept] for name, column in self.columns.items()},
            signed=[error for error, is_kept in zip(self.signed, kept, strict=True) if is_kept],
        )


def in_short(signed: Sequence[float]) -> str:
    """`mean 2.10 %, median 1.50 %, max 9.1 %, signed mean -0.20 %, 351 shapes`."""
    absolute = [abs(error) for error in signed]
    return (
        f"mean {mean(absolute):.2f} %, median {median(absolute):.2f} %, max {max(absolute):.1f} %, "
        f"signed mean {mean(signed):+.2f} %, {len(signed)} shapes"
    )


def errors(samples: Sequence[Samples]) -> Iterator[Errors]:
    """Families are fitted as a whole: a shape that two operators share is held out of both."""
    yield from _errors(samples, lambda one: ~is_held_out(one.work), lambda one: is_held_out(one.work))


def errors_beyond(samples: Sequence[Samples]) -> Iterator[Errors]:
    """Of operators whose time depends on the width: fitted to narrow shapes, asked for wide ones."""
    of_width = [one for one in samples if "dim" in one.columns and one.operator != "fillmask"]
    yield from _errors(of_width, lambda one: one.columns["dim"] <= NARROW, lambda one: one.columns["dim"] > WIDE)


Chosen = Callable[[Samples], np.ndarray]


def _errors(samples: Sequence[Samples], fitted_to: Chosen, asked_for: Chosen) -> Iterator[Errors]:
    families: dict[str, list[Samples]] = {}
    for one in samples:
        families.setdefault(one.work.family, []).append(one)
    for family in families.values():
        for phase in family[0].times_ns:
            regressor = fitted([one.chosen(fitted_to(one)) for one in family], phase)
            for one in family:
                asked = one.chosen(asked_for(one))
                signed = 100 * (regressor.time_ns(asked.work_in(phase)) / asked.times_ns[phase] - 1)
                yield Errors(
                    operator=one.operator, phase=phase, columns=dict(asked.columns), signed=[float(e) for e in signed]
                )


def is_held_out(work: Work) -> np.ndarray:
    """A mask of shape (n,), by the shape alone."""
    hashes = (hashlib.sha256(work.shape(i).encode()).digest() for i in range(len(work)))
    return np.array([int.from_bytes(found[:8], "big") % ONE_OF == 0 for found in hashes])
