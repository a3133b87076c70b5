"""The key of one collective, or of one message: every rank that takes part can work it out alone."""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.model.collective import Collective, Group

SEND = "send"
RECEIVE = "recv_"
RECEIVE_ANY = "recv_any_source_"
NOBODY = -1


@dataclass(frozen=True, slots=True)
class CollectiveKey:
    """`source` and `target` are ranks in the group, for point-to-point; a receive from any source has no source."""

    group: str
    seq: int
    tag: int = 0
    source: int = NOBODY
    target: int = NOBODY

    @property
    def is_p2p(self) -> bool:
        return self.target != NOBODY

    def members(self, group: Group) -> tuple[int, ...]:
        """The global ranks that must come; none where that cannot be known."""
        if not self.is_p2p:
            return group.ranks
        ends = (self.source, self.target)
        return tuple(group.ranks[end] for end in ends) if all(0 <= end < group.size for end in ends) else ()

    def __str__(self) -> str:
        if not self.is_p2p:
            return f"#{self.seq}"
        source = "any rank" if self.source == NOBODY else str(self.source)
        return f"{source} to {self.target} tag {self.tag} #{self.seq}"


def collective_key(collective: Collective, rank: int, group: Group) -> CollectiveKey:
    """`rank` is the global rank that issued it."""
    identity = collective.identity
    if not collective.is_p2p:
        return CollectiveKey(identity.group, identity.seq)
    here = group.ranks.index(rank) if rank in group.ranks else NOBODY
    if collective.op == SEND:
        return CollectiveKey(identity.group, identity.seq, identity.tag, here, identity.peer)
    return CollectiveKey(identity.group, identity.seq, identity.tag, identity.peer, here)
