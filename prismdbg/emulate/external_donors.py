"""Values that ranks of an earlier run received, as an index for the peers of an emulated rank. Nothing is copied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from prismdbg.capsule import checked_json
from prismdbg.capsule.checked_json import Count, Word
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.format import payload_segment
from prismdbg.capsule.transfer import open_plain
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from prismdbg.log.rank_log import read_log
from prismdbg.model.collective import Collective
from prismdbg.model.private_file import private
from prismdbg.settings.donor_value import DonorValue, earlier_key, received_key, similar_key
from prismdbg.settings.mesh_axes import Axes
from prismdbg.simulate.graph.mesh import Mesh

_HINT = "record or emulate the donor again, or leave --donor"


def is_beside(name: str) -> str:
    """A rule: a file of that run's own folder."""
    return "is not the name of a file in the same folder" if "/" in name or name == ".." else ""


def is_float(value: object) -> str:
    return "" if value is None or isinstance(value, float) else "must be a floating-point number or null"


class DonorJson(TypedDict):
    """`DonorValue`, as a rank of that run wrote it. Of NaN there are means, too."""

    key: str
    rank: Count
    like: NotRequired[str]
    file: NotRequired[Annotated[Word, is_beside]]
    offset: NotRequired[Count]
    size_bytes: NotRequired[Count]
    mean: NotRequired[Annotated[Any, is_float]]
    deviation: NotRequired[Annotated[Any, is_float]]


def write_external(run: RunFolder, mesh: Mesh, target: Path) -> int:
    """The number of values found. `UsageError` where a recorded run has none: they are kept on request only. In an
    emulated one there may be none: each answer followed from what the rank itself sent.

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
    if not found and "emulated" not in read_json(run.run_json):
        raise UsageError(
            f"{run.path} contains no received values",
            hint="choose a run in which ranks receive tensors"
            if run.keeps_all
            else "record it with --window all, then use it as donor",
        )
    with open(target / "0.jsonl", "w", opener=private) as file:
        file.writelines(json.dumps(asdict(value)) + "\n" for value in found.values())
    return len(found)


class _DataFiles:
    """How large the files of a run are that values lie in. A foreign run may name links, pipes, and more than there
    is; ranks read what is written here without looking again."""

    def __init__(self) -> None:
        self._size_bytes: dict[Path, int] = {}

    def has(self, path: Path, end: int) -> bool:
        """`OSError` where it is no plain file."""
        if path not in self._size_bytes:
            with open_plain(path) as file:
                self._size_bytes[path] = file.seek(0, 2)
        return end <= self._size_bytes[path]

    def keeps(self, path: Path, end: int) -> bool:
        """As `has`; not so where the recording has pruned the file."""
        try:
            return self.has(path, end)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _unreadable(path, error) from error

    def require(self, path: Path, end: int, where: str) -> None:
        try:
            if self.has(path, end):
                return
        except OSError as error:
            raise _unreadable(path, error) from error
        raise CapsuleError(f"{where}: a value ends at byte {end:,} of {path.name}, which is shorter", hint=_HINT)


def _unreadable(path: Path, error: OSError) -> CapsuleError:
    return CapsuleError(f"{path} cannot be read: {error.strerror}", hint=_HINT)


def _values(folder: Path, log: RankLog, mesh: Mesh) -> list[DonorValue]:
    axes = _titles(log, mesh)
    found, data = [], _DataFiles()
    for record in log.collectives:
        payload = record.payload
        if payload is not None and data.keeps(
            folder / payload_segment(payload.segment), payload.offset + payload.size_bytes
        ):
            offset = 0
            group = log.groups.get(record.group)
            if record.op == "recv_" and group is not None and log.rank in group.ranks:
                offset = record.root - group.ranks.index(log.rank)
            found.append(_value(folder, log.rank, record, axes.get(record.group, record.group), offset))
    return found


def _sent(run: RunFolder, mesh: Mesh) -> Iterator[DonorValue]:
    """What ranks of an emulation sent: under the very collective where the mesh is the same, and under its like."""
    emulated = read_json(run.run_json).get("emulated")
    if not isinstance(emulated, dict):
        return
    data = _DataFiles()
    is_the_same_mesh = emulated.get("mesh") == {name: mesh.size(name) for name in mesh.order}
    for index in sorted((run.path / "donors").glob("*.jsonl")):
        for number, line in enumerate(checked_json.read_bytes(index).splitlines()):
            kept = _kept(line, f"{index}, line {number + 1}")
            if kept.size_bytes:
                data.require(index.parent / kept.file, kept.offset + kept.size_bytes, f"{index}, line {number + 1}")
            value = replace(kept, file=str((index.parent / kept.file).resolve()))
            if is_the_same_mesh:
                yield replace(value, key=earlier_key(kept.key))
            if kept.like:
                yield replace(value, key=earlier_key(kept.like))


def _kept(line: bytes, where: str) -> DonorValue:
    told = checked_json.checked(DonorJson, checked_json.parse(line, where, any_float=True).value, where)
    return DonorValue(**{name: value for name, value in told.items() if name in DonorJson.__annotations__})  # type: ignore[arg-type]


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
