"""Values that ranks of an earlier run received, as an index for the peers of an emulated rank. Nothing is copied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from prismdbg.capsule.log_format import payload_segment
from prismdbg.capsule.log_reader import RankLog, read_log
from prismdbg.errors import UsageError
from prismdbg.model.collective import Collective
from prismdbg.predict.mesh import Mesh
from prismdbg.rank.emulation.axes import Axes
from prismdbg.rank.emulation.donors import DonorValue, earlier_key, received_key, similar_key
from prismdbg.workflows.run_folder import RunFolder, read_json


def write_external(run: RunFolder, mesh: Mesh, target: Path) -> int:
    """The number of values found. `UsageError` where the run has none: what was received is kept on request only.

    Where that run has as many ranks as the mesh, each value is there under the rank that received it, too.
    """
    target.mkdir(mode=0o700)
    found: dict[str, DonorValue] = {}
    for folder in run.rank_folders():
        log = read_log(folder)
        is_the_same_world = any(g.title == "world" and g.size == mesh.world for g in log.groups.values())
        for value in _values(folder, log, mesh):
            found.setdefault(value.key, value)
            if is_the_same_world:
                key = received_key(value.key, log.rank)
                found[key] = replace(value, key=key)
    for value in _sent(run, mesh):
        found.setdefault(value.key, value)
    if not found:
        raise UsageError(
            f"{run.path} holds no value that a rank received", hint="record it with --window all, then give it again"
        )
    (target / "0.jsonl").write_text("".join(json.dumps(asdict(value)) + "\n" for value in found.values()))
    return len(found)


def _values(folder: Path, log: RankLog, mesh: Mesh) -> list[DonorValue]:
    axes = _titles(log, mesh)
    found = []
    for record in log.collectives:
        if record.payload is not None:
            offset = 0
            if record.op == "recv_" and record.group in log.groups:
                offset = record.root - log.groups[record.group].ranks.index(log.rank)
            found.append(_value(folder, log.rank, record, axes.get(record.group, record.group), offset))
    return found


def _sent(run: RunFolder, mesh: Mesh) -> Iterator[DonorValue]:
    """What ranks of an emulation sent: under the very collective where the mesh is the same, and under its like."""
    emulated = read_json(run.run_json).get("emulated")
    if not isinstance(emulated, dict):
        return
    is_the_same_mesh = emulated.get("mesh") == {name: mesh.size(name) for name in mesh.order}
    for index in sorted((run.path / "donors").glob("*.jsonl")):
        for line in index.read_text().splitlines():
            kept = DonorValue(**json.loads(line))
            value = replace(kept, file=str((index.parent / kept.file).resolve()))
            if is_the_same_mesh:
                yield replace(value, key=earlier_key(kept.key))
            if kept.like:
                yield replace(value, key=earlier_key(kept.like))


def _titles(log: RankLog, mesh: Mesh) -> dict[str, str]:
    """What each group is called where it has a mesh axis's name; by its members where the runs' worlds are equal."""
    axes = Axes([(name, mesh.size(name)) for name in mesh.order])
    return {
        name: group.title if group.title in (*mesh.names, "world") else axes.name_of(name, group.ranks)
        for name, group in log.groups.items()
    }


def _value(folder: Path, rank: int, record: Collective, axis: str, offset: int) -> DonorValue:
    assert record.payload is not None
    return DonorValue(
        key=similar_key(axis, record.name, record.identity.seq, offset),
        rank=rank,
        file=str((folder / payload_segment(record.payload.segment)).resolve()),
        offset=record.payload.offset,
        size_bytes=record.payload.size_bytes,
    )
