"""Nodes of which nothing is heard any more: neither their supervisors nor their ranks have written anything since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prismdbg.diagnosis.evidence import Evidence, SilentNode
from prismdbg.diagnosis.failures import last_call
from prismdbg.diagnosis.verdict import Call, Certainty, Verdict
from prismdbg.diagnosis.wording import rank_list
from prismdbg.model.durations import duration
from prismdbg.model.moment import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class LostNode(Verdict):
    """`ranks`: those of the node that did not end by themselves; `last`: their last calls. kept_there: their logs are
    on the node, and cannot be read; recorded_s: how long ago the ranks recorded last, if that was clearly after the
    last heartbeat."""

    node: str
    kept_there: bool
    silent_s: float
    recorded_s: float | None
    last: tuple[Call, ...]

    kind = "lost_node"

    @property
    def moment(self) -> Moment | None:
        return self.last[0].collective.moment if self.last else None

    @property
    def text(self) -> str:
        return (
            f"node {self.node} with {rank_list(self.ranks)} is lost: no heartbeat for {duration(self.silent_s)}, "
            f"and {self._since}"
        )

    @property
    def _since(self) -> str:
        if self.kept_there:
            return "their logs are on it"
        if self.recorded_s is not None:
            return f"its ranks recorded last {duration(self.recorded_s)} ago"
        return "its ranks have recorded nothing since"

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(f"its last collective: {call.text}" for call in self.last)

    def details(self) -> dict[str, Any]:
        return {"node": self.node, "silent_s": round(self.silent_s, 1)}


def find_lost_nodes(evidence: Evidence) -> Iterator[LostNode]:
    for node in evidence.silent_nodes:
        known = [rank for rank in node.ranks if rank in evidence.logs]
        kept_there = node.keeps_logs and _others_failed(evidence, node)
        ranks = node.ranks if kept_there else tuple(rank for rank in known if not _has_ended(evidence, rank))
        if ranks and not node.goes_on and (kept_there or not node.keeps_logs):
            calls = (last_call(evidence.logs[rank]) for rank in known)
            is_sure = not kept_there and node.recorded_s is None
            yield LostNode(
                certainty=Certainty.CERTAIN if is_sure else Certainty.LIKELY,
                kept_there=kept_there,
                began_wall_ns=0,  # its clock is another one; the failures of others follow from it
                ranks=ranks,
                node=node.name,
                silent_s=node.silent_s,
                recorded_s=node.recorded_s,
                last=tuple(call for call in calls if call is not None),
            )


def unseen_ends(evidence: Evidence) -> Iterator[str]:
    """Sentences on nodes whose supervisor alone is gone."""
    told = {verdict.node for verdict in find_lost_nodes(evidence)}
    for node in evidence.silent_nodes:
        if node.name not in told:
            yield (
                f"the supervisor of node {node.name} is lost (no heartbeat for {duration(node.silent_s)}): "
                "the ends of its ranks were not seen"
            )


def _others_failed(evidence: Evidence, node: SilentNode) -> bool:
    """Without it, the ranks of a node whose logs nobody sees may go on without their supervisor."""
    others = [log for rank, log in evidence.logs.items() if rank not in node.ranks]
    return any(note.kind == "incident" for log in others for note in log.notes)


def _has_ended(evidence: Evidence, rank: int) -> bool:
    return any(note.kind == "exit" for note in evidence.logs[rank].notes)
