"""What if: the same job with slow ranks, slow links, delays or faster kernels. Another mesh order is another graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.simulate.cluster.cluster import ClusterModel, Tier
from prismdbg.simulate.graph.entries import Entries, Kind
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.graph.mesh import Ints
from prismdbg.simulate.quantities import MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """This rank takes so much longer for one of its computations; without an entry, it starts so much later."""

    rank: int
    delay_ns: int
    entry: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Factors in millionths, larger is slower. compute_ppm, link_ppm: by rank. kernel_ppm: by pattern of the label.

    tier_ppm: by name of a tier, on its latency and rate alike.
    """

    compute_ppm: Mapping[int, int] = field(default_factory=dict)
    link_ppm: Mapping[int, int] = field(default_factory=dict)
    tier_ppm: Mapping[str, int] = field(default_factory=dict)
    kernel_ppm: Mapping[str, int] = field(default_factory=dict)
    delays: tuple[Delay, ...] = ()

    def entries(self, graph: JobGraph) -> list[Entries]:
        """Of each class, with the kernels' factors. UsageError where a pattern is no label."""
        unused = set(self.kernel_ppm)
        changed = [self._changed(rank_class.entries, unused) for rank_class in graph.classes]
        if unused:
            labels = {c.entries.texts[n] for c in graph.classes for n in np.unique(c.entries.label)} - {""}
            raise UsageError(
                f"no computation has the name {sorted(unused)[0]!r}",
                hint=f"name one that is, such as {', '.join(sorted(labels)[:8])}",
            )
        return changed

    def _changed(self, entries: Entries, unused: set[str]) -> Entries:
        duration_ns = entries.duration_ns
        for pattern, ppm in self.kernel_ppm.items():
            named = np.array([fnmatchcase(text, pattern) for text in entries.texts])
            chosen = named[entries.label] & (entries.kind == Kind.COMPUTE)
            if chosen.any():
                unused.discard(pattern)
                duration_ns = np.where(chosen, duration_ns * ppm // MILLION, duration_ns)
        return entries if duration_ns is entries.duration_ns else replace(entries, duration_ns=duration_ns)

    def cluster(self, cluster: ClusterModel) -> ClusterModel:
        known = [tier.name for tier in cluster.tiers]
        for name in self.tier_ppm:
            if name not in known:
                raise UsageError(f"the cluster has no tier {name!r}", hint=f"give one of: {', '.join(known)}")
        tiers = tuple(_slower(tier, self.tier_ppm.get(tier.name, MILLION)) for tier in cluster.tiers)
        return replace(cluster, tiers=tiers, measured_on=cluster.measured_on or cluster) if self.tier_ppm else cluster


def _slower(tier: Tier, ppm: int) -> Tier:
    """A rate of 0 is no limit, and stays so; no other becomes one. Its tables stay what was measured."""
    return replace(
        tier,
        latency_ns=tier.latency_ns * ppm // MILLION,
        rate=max(tier.rate * MILLION // ppm, 1) if tier.rate else 0,
        node_rate=max(tier.node_rate * MILLION // ppm, 1) if tier.node_rate else 0,
    )


def factors(graph: JobGraph, *by_rank: Mapping[int, int]) -> Ints:
    """By rank, the products."""
    found = np.full(graph.mesh.world, MILLION, dtype=np.int64)
    for named in by_rank:
        for rank, ppm in named.items():
            graph.mesh.check_rank(rank)
            found[rank] = found[rank] * ppm // MILLION
    return found
