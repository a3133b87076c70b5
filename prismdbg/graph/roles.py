"""Who gives and who takes in a collective with a root. Where a group is not described, either is assumed."""

from __future__ import annotations

from prismdbg.model import ops
from prismdbg.model.collective import Group
from prismdbg.model.ops import ops_of

FROM_ROOT = ops_of(*ops.FROM_ROOT)
TO_ROOT = ops_of(*ops.TO_ROOT)


def global_rank(group: Group, rank_in_group: int) -> int | None:
    return group.ranks[rank_in_group] if 0 <= rank_in_group < group.size else None


def gives(op: str, root: int, group: Group, rank: int) -> bool:
    """Whether what `rank` passes in reaches the others."""
    return op not in FROM_ROOT or global_rank(group, root) in (rank, None)


def takes(op: str, root: int, group: Group, rank: int) -> bool:
    """Whether something of the others reaches `rank`."""
    if op in FROM_ROOT:
        return global_rank(group, root) != rank
    return op not in TO_ROOT or global_rank(group, root) in (rank, None)
