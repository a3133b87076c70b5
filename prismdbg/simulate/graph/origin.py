"""Where a job graph comes from, as far as its entries do not say it: which ranks did it themselves, what is known of
the run it was taken from, and what was changed since.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

NOT_KNOWN = -1
Standings = NDArray[np.uint8]


class Standing(IntEnum):
    """On what it rests that a rank does what its class does."""

    OWN = 0  # it ran, or was recorded, itself
    CHECKED = 1  # of a class of which a second member ran and agreed
    ASSUMED = 2  # only the mesh says so


class Source(StrEnum):
    RECORDED = "recorded"  # a real run's logs
    EMULATED = "emulated"  # ranks that ran alone among synthesized peers
    ARITHMETIC = "arithmetic"  # nothing ran
    UNSAID = "unsaid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What a rank of the run that the graph was taken from really did in that iteration; `NOT_KNOWN` where it is not.

    computed_ns, blocked_ns: of its main thread. waited_ns: of blocked_ns, until the last of the others was there.
    """

    rank: int
    iteration_ns: int
    computed_ns: int
    blocked_ns: int
    waited_ns: int = NOT_KNOWN
    peak_bytes: int = NOT_KNOWN


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Origin:
    """`standing_at`: by position, a `Standing`; None where every rank stands for itself. stretched: `dp 64 to 512`.

    is_contended: emulated ranks computed as slowly as a cluster file says, beside transfers and on shared processors.

    doubts: what is not reliable because of the logs themselves, as `Fidelity` has it.
    """

    source: Source = Source.UNSAID
    standing_at: Standings | None = None
    stretched: tuple[str, ...] = ()
    truths: tuple[Truth, ...] = ()
    doubts: tuple[str, ...] = ()
    is_contended: bool = False

    @property
    def has_contention(self) -> bool:
        """Whether its times of computation are those of ranks that computed at once, and beside transfers."""
        return self.is_contended or self.source is Source.RECORDED

    def changed(self) -> Origin:
        """Of a job that is no longer the one that ran."""
        return replace(self, truths=())

    def with_own(self, place: int) -> Origin:
        """The rank at this position stands for itself, whatever did before."""
        standing = None if self.standing_at is None else self.standing_at.copy()
        if standing is not None:
            standing[place] = Standing.OWN
        return replace(self.changed(), standing_at=standing)

    def stretched_along(self, axis: int, sizes: tuple[int, ...], size: int, name: str) -> Origin:
        """What is new stands in by nothing but the mesh, if anything stood for itself at all."""
        standing = self.standing_at
        if standing is None:
            standing = np.zeros(sizes, dtype=np.uint8)
        shaped = standing.reshape(sizes)
        kept = shaped.take(range(min(size, sizes[axis])), axis)
        more = np.full([size - kept.shape[axis] if i == axis else n for i, n in enumerate(sizes)], Standing.ASSUMED)
        return replace(
            self.changed(),
            standing_at=np.concatenate([kept, more.astype(np.uint8)], axis).ravel(),
            stretched=(*self.stretched, f"{name} {sizes[axis]} to {size}"),
        )
