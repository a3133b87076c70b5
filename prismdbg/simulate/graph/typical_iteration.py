"""One iteration as it usually goes: a machine that was busy for a moment must not look like a slow rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from prismdbg.simulate.graph.entries import PROVENANCES, Entries, Kind, Provenance

SLIGHTLY = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """`displaced`: in this share of its time the rank waited for a CPU."""

    entries: Entries
    displaced: float = 0.0


def typical_iteration(iterations: Sequence[Iteration]) -> Entries:
    """The last one; each computation takes the median of those iterations that go entry by entry as the last.

    Of these, the ones that were not displaced decide. Where all were, each computation is cut by its iteration's share,
    and counts as modelled.
    """
    alike = [each for each in iterations if goes_as(each.entries, iterations[-1].entries)]
    quiet = [each.entries for each in alike if each.displaced <= SLIGHTLY]
    chosen = quiet or [_cut(each) for each in alike]
    last = chosen[-1]
    if len(chosen) == 1:
        return last
    median_ns = np.median([each.duration_ns for each in chosen], axis=0).astype(np.int64)
    return replace(last, duration_ns=np.where(last.kind == Kind.COMPUTE, median_ns, last.duration_ns))


def _cut(iteration: Iteration) -> Entries:
    entries = iteration.entries
    computed = entries.kind == Kind.COMPUTE
    left_ns = (entries.duration_ns * (1 - iteration.displaced)).astype(np.int64)
    modelled = np.maximum(entries.provenance, PROVENANCES.index(Provenance.MODELLED)).astype(np.uint8)
    return replace(
        entries,
        duration_ns=np.where(computed, left_ns, entries.duration_ns),
        provenance=np.where(computed, modelled, entries.provenance),
    )


def goes_as(one: Entries, other: Entries) -> bool:
    """Durations apart. The same program has the same names in the same order."""
    columns = (
        "kind",
        "stream",
        "issuer",
        "blocking",
        "channel",
        "op",
        "label",
        "line",
        "detail",
        "splits",
        "target",
        "size_bytes",
    )
    tables = ("streams", "channels", "texts")
    return all(getattr(one, name) == getattr(other, name) for name in tables) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in columns
    )
