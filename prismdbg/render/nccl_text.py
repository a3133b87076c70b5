"""What NCCL's debug logs say, as lines of text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prismdbg.importers.nccl_log import Communicator, NcclLog
from prismdbg.model.plurals import counted

_MOST_COMMUNICATORS, _MOST_RINGS, _MOST_RANKS, _MOST_WARNINGS = 8, 2, 16, 8


def nccl_lines(log: NcclLog) -> Iterator[str]:
    hosts = {host for host, _ in log.processes}
    version = f"NCCL {', '.join(sorted(log.versions))}" if log.versions else "NCCL (version unknown)"
    network = f", network {', '.join(sorted(log.networks))}" if log.networks else ""
    yield f"{version}: {_count(len(log.processes), 'process', 'processes')} on {counted(len(hosts), 'host')}{network}"
    for communicator in log.communicators[:_MOST_COMMUNICATORS]:
        yield from _communicator(communicator)
    if (more := len(log.communicators) - _MOST_COMMUNICATORS) > 0:
        yield f"{counted(more, 'more communicator')} (--json lists all)"
    if log.transports:
        counts = ", ".join(f"{name} {count}" for name, count in log.transports.most_common(8))
        gdr = f"; {log.with_gdr} with GPUDirect RDMA" if any(name.startswith("NET/") for name in log.transports) else ""
        yield f"connections between ranks, by transport: {counts}{gdr}"
    if log.settings:
        yield "set: " + ", ".join(f"{name}={value}" for name, value in sorted(log.settings.items())[:16])
    for text, count in log.warnings.most_common(_MOST_WARNINGS):
        yield f"warning: {text}" + (f" ({count} times)" if count > 1 else "")


def _communicator(found: Communicator) -> Iterator[str]:
    nodes = f" on {counted(found.nodes, 'node')}" if found.nodes else ""
    channels = (
        f", {found.coll_channels} collective and {found.p2p_channels} p2p channels" if found.coll_channels else ""
    )
    yield f"communicator of {counted(found.size, 'rank')}{nodes}{channels}"
    for channel, ranks in sorted(found.rings.items())[:_MOST_RINGS]:
        cut = " -> ..." if len(ranks) > _MOST_RANKS else ""
        yield f"  ring of channel {channel}: {' -> '.join(map(str, ranks[:_MOST_RANKS]))}{cut}"
    if (more := len(found.rings) - _MOST_RINGS) > 0:
        yield f"  {counted(more, 'more ring')}"
    if open_ranks := sorted(found.begun - found.ready):
        few = ", ".join(map(str, open_ranks[:_MOST_RANKS]))
        yield f"  initialization not complete on rank {few}"


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def nccl_json(log: NcclLog) -> dict[str, Any]:
    return {
        "versions": sorted(log.versions),
        "networks": sorted(log.networks),
        "processes": len(log.processes),
        "hosts": sorted({host for host, _ in log.processes}),
        "communicators": [_communicator_json(each) for each in log.communicators],
        "transports": dict(log.transports),
        "gpu_direct_rdma": log.with_gdr,
        "settings": log.settings,
        "warnings": dict(log.warnings),
    }


def _communicator_json(found: Communicator) -> dict[str, Any]:
    return {
        "ranks": found.size,
        "nodes": found.nodes or None,
        "collective_channels": found.coll_channels or None,
        "p2p_channels": found.p2p_channels or None,
        "rings": {str(channel): list(ranks) for channel, ranks in sorted(found.rings.items())},
        "not_ready": sorted(found.begun - found.ready),
    }
