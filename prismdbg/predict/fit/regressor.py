"""Times of one family of operators in one phase: at constant efficiency, and how far from it the machine stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.predict.fit.added import Added
from prismdbg.predict.fit.features import features
from prismdbg.predict.fit.forest import Forest
from prismdbg.predict.fit.hull import Hull
from prismdbg.predict.operators.work import Floats, Work
from prismdbg.predict.samples.samples import Phase, Samples

LEAST = 4  # samples


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regressor:
    """Fitted to log(time / added): outside the samples the sum goes on, and what is left of it stays."""

    added: Added
    forest: Forest
    hull: Hull

    @classmethod
    def of(cls, work: Work, times_ns: Floats) -> Regressor:
        """`times_ns`: of each shape."""
        if len(work) < LEAST:
            raise UsageError(
                f"operator {work.family} has {len(work)} samples; at least {LEAST} are needed",
                hint="sample more shapes: `prismdbg sample --budget` with a longer time",
            )
        added = Added.of(work, times_ns)
        forest = Forest(features(work, added), np.log(times_ns / added.time_ns(work)))
        return cls(added=added, forest=forest, hull=Hull(work))

    def time_ns(self, work: Work) -> Floats:
        """Shape (n,)."""
        times: Floats = self.added.time_ns(work) * np.exp(self.forest.at(features(work, self.added)))
        return times


def fitted(samples: Sequence[Samples], phase: Phase) -> Regressor:
    """One regressor of all these samples, which are of one family."""
    return Regressor.of(
        joined([one.work_in(phase) for one in samples]), np.concatenate([one.times_ns[phase] for one in samples])
    )


def joined(parts: Sequence[Work]) -> Work:
    return Work(
        family=parts[0].family,
        flops=np.concatenate([part.flops for part in parts]),
        moved_bytes=np.concatenate([part.moved_bytes for part in parts]),
        sizes={name: np.concatenate([part.sizes[name] for part in parts]) for name in parts[0].sizes},
        has_tiles=parts[0].has_tiles,
        limits={name: np.concatenate([part.limits[name] for part in parts]) for name in parts[0].limits},
    )
