"""Which transfers, groups and ranks are measured at once on a node."""

from __future__ import annotations

import pytest

from prismdbg.rank import interference
from prismdbg.rank.interference import got_share, overlap_group, overlap_sizes, rank_counts, shared_groups
from prismdbg.simulate.cluster.cluster import Factor

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("sizes", "measured"),
    [
        ([KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB], (MIB, 4 * MIB, 16 * MIB)),
        ([16 * KIB, 4 * MIB], (4 * MIB,)),
        ([KIB, 64 * KIB], (64 * KIB,)),
        ([KIB, 64 * MIB], (KIB,)),
        ([64 * MIB, 128 * MIB], (64 * MIB,)),
    ],
)
def test_transfers_that_last_long_enough_and_not_too_long(sizes: list[int], measured: tuple[int, ...]) -> None:
    assert overlap_sizes(sizes) == measured


@pytest.mark.parametrize(("groups", "processors", "members"), [([2, 4], 2, 2), ([2, 4], 8, 4), ([4, 8], 2, 4)])
def test_a_group_with_a_processor_for_each_rank(groups: list[int], processors: int, members: int) -> None:
    assert overlap_group(groups, processors) == members


@pytest.mark.parametrize(
    ("groups", "per_node", "at_once_of"),
    [([2], 2, []), ([2, 4], 4, [(2, 2)]), ([2, 4], 8, [(2, 4), (2, 2), (4, 2)]), ([3], 7, [(3, 2)])],
)
def test_groups_that_fit_into_a_node_together(
    groups: list[int], per_node: int, at_once_of: list[tuple[int, int]]
) -> None:
    assert shared_groups(groups, per_node) == at_once_of


@pytest.mark.parametrize(
    ("groups", "per_node", "processors", "counts"),
    [([2, 4], 4, 2, (2, 4)), ([2, 4], 4, 4, ()), ([2, 3, 8], 8, 2, (2, 3, 8)), ([2], 2, 1, (2,)), ([4], 4, 3, (3, 4))],
)
def test_ranks_beyond_the_processors(
    groups: list[int], per_node: int, processors: int, counts: tuple[int, ...]
) -> None:
    assert rank_counts(groups, per_node, processors) == counts


@pytest.mark.parametrize(
    ("used_ns", "processors", "share"),
    [([100], 2, 1.0), ([50], 2, 0.5), ([50] * 4, 2, 1.0), ([25] * 4, 2, 0.5), ([100, 101], 2, 1.0), ([90] * 3, 4, 0.9)],
)
def test_what_other_programs_left_of_the_processors(used_ns: list[int], processors: int, share: float) -> None:
    assert got_share(used_ns, [100] * len(used_ns), processors) == pytest.approx(share)


def test_the_names_are_those_of_the_cluster_file() -> None:
    """The rank's side and the host's share no code."""
    names = {
        interference.COMPUTE_OVERLAP,
        interference.COMMUNICATION_OVERLAP,
        interference.LINKS,
        interference.PROCESSORS,
    }
    assert names == set(Factor)
