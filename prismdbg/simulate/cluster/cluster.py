"""A model of the machines: link tiers, algorithms, and how fast each rank is. Values; `cluster_file` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from prismdbg.simulate.cluster.curve import Curve, Lies
from prismdbg.simulate.cluster.slowdown import Slowdown
from prismdbg.simulate.quantities import MILLION


class Algorithm(StrEnum):
    RING = "ring"
    TREE = "tree"
    HIERARCHICAL = "hierarchical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Links between ranks that lie in the same block of `spans` consecutive ranks; 0 spans the job.

    `rate`: bytes a second of one rank, one direction. `node_rate`: what all ranks of a node share, 0 for no limit.
    measured: by operation, times that are better known than the formula knows them.
    """

    name: str
    spans: int
    latency_ns: int
    rate: int
    node_rate: int = 0
    measured: Mapping[str, tuple[Curve, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How far the model was from what was measured, of one operation: the median and the largest relative error.

    groups, sizes_bytes: the least and the most that were measured.
    """

    median_ppm: int
    largest_ppm: int
    groups: tuple[int, int]
    sizes_bytes: tuple[int, int]


class Factor(StrEnum):
    """What a calibration measures beside collectives."""

    COMPUTE_OVERLAP = "compute_overlap"
    COMMUNICATION_OVERLAP = "communication_overlap"
    LINKS = "links"
    PROCESSORS = "processors"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorFit:
    """How far a factor was from what was measured: the median and the largest relative error over so many cases."""

    median_ppm: int
    largest_ppm: int
    cases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Where a cluster file's figures come from. `fits`: by operation. nodes: of the group that spans most of them,
    0 where an older file does not say. ranks_of_a_node: the most of a group across nodes in one of them, 0 where there
    was no such group, or where an older file does not say.
    """

    machine: str
    backend: str
    date: str
    fits: Mapping[str, Fit]
    factors: Mapping[Factor, FactorFit] = field(default_factory=dict)
    nodes: int = 0
    ranks_of_a_node: int = 0

    def of(self, groups: Sequence[Lies], fits: Mapping[str, Fit]) -> Calibration:
        """Of times of these groups."""
        across = [group.local for group in groups if group.nodes > 1]
        nodes = max(group.nodes for group in groups)
        return replace(self, fits=fits, nodes=nodes, ranks_of_a_node=max(across, default=0))


@dataclass(frozen=True, slots=True)
class Choice:
    """This algorithm for messages of up to so many bytes; None for any size."""

    algorithm: Algorithm
    up_to_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterModel:
    """`tiers` from the nearest to the farthest; the last spans the job.

    eager_bytes: a send up to this size does not wait for its receiver. compute_overlap_ppm, transfer_overlap_ppm:
    how much longer computation and communication take while an asynchronous collective is under way.
    processors: how much longer a rank computes, by the ranks of its node, all of which are taken to compute at once.
    shared_links: how much longer a collective inside a node takes, by the groups of its channel in that node.
    compute_ppm, link_ppm: by rank, where it is not one million; larger is slower. is_measured: whether latencies and
    rates come from measurements on these machines. measured_on: of a cluster with other links than the one that the
    tables of its tiers were measured on, that one.
    """

    tiers: tuple[Tier, ...]
    ranks_per_node: int = 8
    algorithms: Mapping[str, tuple[Choice, ...]] = field(default_factory=dict)
    eager_bytes: int = 0
    compute_overlap_ppm: int = MILLION
    transfer_overlap_ppm: int = MILLION
    processors: Slowdown = field(default_factory=Slowdown)
    shared_links: Slowdown = field(default_factory=Slowdown)
    compute_ppm: Mapping[int, int] = field(default_factory=dict)
    link_ppm: Mapping[int, int] = field(default_factory=dict)
    is_measured: bool = False
    calibration: Calibration | None = None
    measured_on: ClusterModel | None = None

    def algorithm(self, op: str, size_bytes: int) -> Algorithm | None:
        """None where nothing was chosen."""
        for choice in self.algorithms.get(op, ()) or self.algorithms.get("default", ()):
            if choice.up_to_bytes is None or size_bytes <= choice.up_to_bytes:
                return choice.algorithm
        return None


def ideal() -> ClusterModel:
    """Links that take no time at all."""
    return ClusterModel(tiers=(Tier(name="ideal", spans=0, latency_ns=0, rate=0),))


def example() -> ClusterModel:
    """Nodes of eight with 450 GB/s inside and 50 GB/s a rank between: figures assumed, not measured."""
    return ClusterModel(
        tiers=(
            Tier(name="nvlink", spans=8, latency_ns=2_000, rate=450 * 10**9),
            Tier(name="fabric", spans=0, latency_ns=6_000, rate=50 * 10**9, node_rate=400 * 10**9),
        ),
        algorithms={"all_reduce": (Choice(Algorithm.TREE, 1 << 18), Choice(Algorithm.RING))},
    )
