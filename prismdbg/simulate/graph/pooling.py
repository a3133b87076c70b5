"""Ranks that issue the same share one computing time: they ran one after the other, on a machine with noise."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prismdbg.model.plurals import counted
from prismdbg.simulate.graph.entries import Entries, Kind
from prismdbg.simulate.graph.folding import shape_of
from prismdbg.simulate.graph.sharing import in_proportion
from prismdbg.simulate.graph.typical_iteration import goes_as

SMALL_SPREAD = 0.02
MOST_TOLD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What ranks of one class computed in an iteration. `pooled_ns`: the median, which stands for all of them."""

    ranks: tuple[int, ...]
    least_ns: int
    most_ns: int
    pooled_ns: int

    @property
    def share(self) -> float:
        return (self.most_ns - self.least_ns) / max(self.pooled_ns, 1)

    def doubt(self) -> str:
        """What is not reliable."""
        return (
            f"the computing time of the class of rank {self.ranks[0]}: its {len(self.ranks)} ranks took "
            f"{self.least_ns / 1e6:.1f} to {self.most_ns / 1e6:.1f} ms; their median, {self.pooled_ns / 1e6:.1f} ms, "
            "is used for all"
        )


def doubts(spreads: Sequence[Spread]) -> tuple[str, ...]:
    """The widest ones each, and how many others there are."""
    widest = sorted(spreads, key=lambda spread: -spread.share)
    told = [spread.doubt() for spread in sorted(widest[:MOST_TOLD], key=lambda spread: spread.ranks)]
    if rest := widest[MOST_TOLD:]:
        classes = counted(len(rest), "more class", "more classes")
        told.append(f"the computing time of {classes}: ranks of one class differ by up to {rest[0].share:.0%}")
    return tuple(told)


def memory_doubts(by_rank: Mapping[int, Entries]) -> tuple[str, ...]:
    """Classes whose ranks, as far as their memory was traced, needed different amounts at their peaks: calls alone make
    a class, and its memory is that of its first rank."""
    apart = []
    for ranks in _classes(by_rank):
        peaks = {rank: peak for rank in ranks if (peak := by_rank[rank].peak_bytes())}
        if peaks and max(peaks.values()) - min(peaks.values()) > SMALL_SPREAD * max(peaks.values()):
            apart.append(peaks)
    told = [
        f"the memory of the class of rank {min(peaks)}: the peaks of {len(peaks)} of its ranks are "
        f"{min(peaks.values()) / 1e6:.1f} to {max(peaks.values()) / 1e6:.1f} MB; that of rank {min(peaks)}, "
        f"{peaks[min(peaks)] / 1e6:.1f} MB, is used for all"
        for peaks in apart[:MOST_TOLD]
    ]
    if rest := apart[MOST_TOLD:]:
        told.append(f"the memory of {counted(len(rest), 'more class', 'more classes')}: their ranks differ, too")
    return tuple(told)


def _classes(by_rank: Mapping[int, Entries]) -> list[list[int]]:
    classes: dict[Hashable, list[int]] = {}
    for rank in sorted(by_rank):
        classes.setdefault(shape_of(by_rank[rank]), []).append(rank)
    return list(classes.values())


def pooled(by_rank: Mapping[int, Entries]) -> tuple[dict[int, Entries], list[Spread]]:
    """The same ranks with the computing time of their class, in the proportions of each entry's median where they go
    entry by entry."""
    found: dict[int, Entries] = {}
    spreads = []
    for ranks in _classes(by_rank):
        members = [by_rank[rank] for rank in ranks]
        found |= dict(zip(ranks, _shared(members), strict=True))
        totals_ns = [computed_ns(entries) for entries in members]
        pooled_ns = computed_ns(found[ranks[0]])
        spread = Spread(ranks=tuple(ranks), least_ns=min(totals_ns), most_ns=max(totals_ns), pooled_ns=pooled_ns)
        if spread.share > SMALL_SPREAD:
            spreads.append(spread)
    return {rank: found[rank] for rank in by_rank}, spreads


def computed_ns(entries: Entries) -> int:
    return int(entries.duration_ns[entries.kind == Kind.COMPUTE].sum())


def _shared(members: Sequence[Entries]) -> list[Entries]:
    if len(members) == 1:
        return list(members)
    total_ns = int(np.median([computed_ns(each) for each in members]))
    if not all(goes_as(each, members[0]) for each in members):
        return [_lasting(each, total_ns) for each in members]
    median_ns = np.median([each.duration_ns for each in members], axis=0).astype(np.int64)
    computed = members[0].kind == Kind.COMPUTE
    middle = replace(members[0], duration_ns=np.where(computed, median_ns, members[0].duration_ns))
    return [_lasting(middle, total_ns)] * len(members)  # medians of parts would add up to less than a rank ever took


def _lasting(entries: Entries, total_ns: int) -> Entries:
    """In its own proportions."""
    computed = np.flatnonzero(entries.kind == Kind.COMPUTE)
    if not len(computed):
        return entries
    durations = entries.duration_ns.copy()
    durations[computed] = in_proportion(entries.duration_ns[computed], total_ns)
    return replace(entries, duration_ns=durations)
