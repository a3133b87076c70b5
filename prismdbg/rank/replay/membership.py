"""Who takes part in the stopped collective, and how each of them is played."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from prismdbg.capsule.log.events import RankLog
from prismdbg.errors import PrismError, UsageError
from prismdbg.model.collective import Collective, group_title
from prismdbg.rank.c10d.worlds import torch_name
from prismdbg.rank.debug.gate import Stop

MAX_MEMBERS = 4096


def peers_at(stop: Stop, log: RankLog) -> dict[str, Any]:
    """Every member of the group. `arrived` is unknown: this rank's log holds only this rank's times."""
    name = str(stop.event.get("process_group", ""))
    if not name:
        raise UsageError("the rank is not at a collective", hint="type `next` to run to one")
    ranks = ranks_of(name, log)
    record = recorded(stop, log)
    involved = _involved(stop, len(ranks))
    members = [
        {"rank": rank, "group_rank": place, "role": _role(stop, rank, log), "arrived": _arrived(rank, log)}
        for place, rank in enumerate(ranks)
        if place in involved or rank == log.rank
    ]
    return {
        "group": name,
        "title": group_title(log.groups, name),
        "size": len(ranks),
        "members": members[:MAX_MEMBERS],
        "recorded_ns": record.duration_ns if record is not None and not record.synthesized else None,
    }


def ranks_of(name: str, log: RankLog) -> list[int]:
    """Global ranks in group order, from the log, else (a group made after its end) from the living group."""
    if name in log.groups:
        return list(log.groups[name].ranks)
    try:
        from torch.distributed.distributed_c10d import _resolve_process_group

        return list(dist.get_process_group_ranks(_resolve_process_group(torch_name(name))))
    except (RuntimeError, ValueError, KeyError, PrismError):
        return []


def recorded(stop: Stop, log: RankLog) -> Collective | None:
    """The record that this collective was compared with."""
    identity = stop.event.get("identity")
    return next((r for r in log.collectives if str(r.identity) == identity), None)


def _involved(stop: Stop, size: int) -> range | set[int]:
    """Ranks in the group: of a send or a receive only its peer."""
    root = stop.event.get("root")
    if stop.event.get("tag") is not None and root is not None:
        return {int(root)}
    return range(size)


def _role(stop: Stop, rank: int, log: RankLog) -> str:
    if rank == log.rank:
        return "this rank"
    if not stop.answered or "synthesized" not in stop.names:
        return "not answered"
    return "synthesized" if stop.names["synthesized"] else "recorded"


def _arrived(rank: int, log: RankLog) -> str:
    return "here" if rank == log.rank else "unknown"
