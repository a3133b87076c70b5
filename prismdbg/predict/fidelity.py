"""How much of a result is real, recorded, modelled or assumed. No result is given without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prismdbg.predict.entries import MODELLED_NS, PROVENANCES, Entries, Kind, Provenance

COMPONENTS = ("computation", "communication", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Of one component over all ranks: so much of its time and of its bytes has this provenance."""

    component: str
    provenance: Provenance
    time_ns: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """`doubts`: what cannot be concluded from this result."""

    shares: tuple[Share, ...]
    doubts: tuple[str, ...]

    def time_share(self, provenance: Provenance, component: str = "") -> float:
        return self._share("time_ns", provenance, component)

    def bytes_share(self, provenance: Provenance, component: str = "") -> float:
        return self._share("size_bytes", provenance, component)

    def _share(self, what: str, provenance: Provenance, component: str) -> float:
        counted = [share for share in self.shares if component in ("", share.component)]
        total = sum(getattr(share, what) for share in counted)
        return sum(getattr(s, what) for s in counted if s.provenance is provenance) / total if total else 0.0

    def lines(self) -> list[str]:
        text = [
            f"{s.component}: {s.provenance} {s.time_ns / 1e9:.3f} s of ranks' time, {s.size_bytes:,} bytes"
            for s in self.shares
            if s.time_ns or s.size_bytes
        ]
        return [*text, *(f"do not conclude: {doubt}" for doubt in self.doubts)]


@dataclass(frozen=True, slots=True)
class Part:
    """One cohort: its ranks do `entries`, their communication taking `transfer_ns` on average, by entry."""

    entries: Entries
    computed_ns: Sequence[int]
    transfer_ns: NDArray[np.float64]
    ranks: int


def judge(parts: Sequence[Part], *, cluster_is_measured: bool) -> Fidelity:
    """A model whose parameters nobody measured makes what it says assumed."""
    time = np.zeros((len(COMPONENTS), len(PROVENANCES)))
    sizes = np.zeros_like(time)
    for part in parts:
        kind, provenance = part.entries.kind, part.entries.provenance
        if not cluster_is_measured:
            by_model = part.entries.communicates & (part.entries.duration_ns == MODELLED_NS)
            provenance = np.where(by_model, PROVENANCES.index(Provenance.ASSUMED), provenance)
        which = np.where(part.entries.communicates, 1, np.where(kind == Kind.MEMORY, 2, 0))
        spent = np.where(kind == Kind.COMPUTE, part.computed_ns, 0) + part.transfer_ns
        moved = np.abs(part.entries.size_bytes)
        np.add.at(time, (which, provenance), spent * part.ranks)
        np.add.at(sizes, (which, provenance), moved * part.ranks)
    shares = tuple(
        Share(component=name, provenance=p, time_ns=round(time[i, j]), size_bytes=round(sizes[i, j]))
        for i, name in enumerate(COMPONENTS)
        for j, p in enumerate(PROVENANCES)
        if time[i, j] or sizes[i, j]
    )
    return Fidelity(shares=shares, doubts=_doubts(parts, shares))


def _doubts(parts: Sequence[Part], shares: Sequence[Share]) -> tuple[str, ...]:
    doubts = []
    found = {(share.component, share.provenance) for share in shares}
    communicates = any(part.entries.communicates.any() for part in parts)
    if any((p.entries.communicates & (p.entries.duration_ns == MODELLED_NS)).any() for p in parts):
        doubts.append("queues on links between different channels: contention is a formula by channel, no queue")
    if communicates and ("communication", Provenance.ASSUMED) in found:
        doubts.append("absolute times of communication: its parameters were assumed")
    if ("computation", Provenance.ASSUMED) in found:
        doubts.append("absolute times of computation: durations were assumed")
    if ("memory", Provenance.ASSUMED) in found:
        doubts.append("memory peaks: sizes were assumed")
    doubts.append("anything about values: nothing was computed, only timed")
    return tuple(doubts)
