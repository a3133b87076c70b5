"""Which works gloo makes of a recorded collective: from a rank's log to what a witness of the backend saw."""

from __future__ import annotations

from prismdbg.capsule.log.events import RankLog
from prismdbg.model.collective import Collective

_ONE_WORK = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "_reduce_scatter_base_": "all_reduce",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "gather_": "gather",
    "scatter_": "scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "send": "send",
    "recv_": "recv",
    "recv_any_source_": "recvAnySource",
    "barrier": "barrier",
}


def expected_works(log: RankLog) -> list[str]:
    """The names of gloo's works for every collective of the log that it did not refuse, in order."""
    return [work for collective in log.collectives if not is_refused(collective) for work in _works(collective, log)]


def is_refused(collective: Collective) -> bool:
    """The backend has no such operator: the call itself raised."""
    return collective.failure is not None and collective.failure.at_issue


def _works(collective: Collective, log: RankLog) -> list[str]:
    match collective.op:
        case "reduce_scatter_":  # every chunk is reduced everywhere
            return ["all_reduce"] * len(collective.inputs)
        case "reduce_scatter_tensor_coalesced_":
            return ["all_reduce"] * len(collective.outputs)
        case "monitored_barrier_":  # the first rank hears from each other one, then answers each
            peers = log.groups[collective.group].size - 1
            return ["recv"] * peers + ["send"] * peers if log.rank == 0 else ["send", "recv"]
    return [_ONE_WORK[collective.op]]
