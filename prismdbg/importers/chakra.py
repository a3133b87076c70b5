"""Chakra execution traces (protobuf, one file a rank) as the logs of a job.

They have calls with their sizes, groups, durations and an order; what `prismdbg export --format chakra` adds to a node
(operator, shapes, moment) is read, too. Members of groups are in a JSON file beside them, or in the node that Chakra's
converter makes of PyTorch's list of groups.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from prismdbg.capsule import checked_json
from prismdbg.capsule.limits import MAX_DIMENSIONS, MAX_IMPORTED_RANKS, MAX_JSON_BYTES, MAX_TENSORS
from prismdbg.errors import CapsuleError
from prismdbg.importers import execution_trace, json_stream
from prismdbg.importers.chakra_schema import COLLECTIVE, COLLECTIVES, METADATA, RECV, SEND, SUFFIX, bodies, messages
from prismdbg.importers.file_rank import rank_of_name
from prismdbg.importers.job_groups import JobGroups
from prismdbg.importers.torch_names import known_dtype
from prismdbg.importers.traced_job import TracedCall, TracedRank
from prismdbg.model.collective import Group, TensorMeta
from prismdbg.model.ops import OPS

GROUPS_FILE = "comm_groups.json"
MAX_NODE_BYTES = 1 << 20
MOST_NODES = 2_000_000
MOST_CALLS = 200_000
_MAX_US = 1 << 52
_WORLD = "all ranks"
_RANK = re.compile(r"\.(\d{1,8})\.et$")
_OPS = {
    "ALL_REDUCE": "allreduce_",
    "REDUCE": "reduce_",
    "ALL_GATHER": "_allgather_base_",
    "GATHER": "gather_",
    "SCATTER": "scatter_",
    "BROADCAST": "broadcast_",
    "ALL_TO_ALL": "alltoall_base_",
    "REDUCE_SCATTER": "_reduce_scatter_base_",
    "REDUCE_SCATTER_BLOCK": "_reduce_scatter_base_",
    "BARRIER": "barrier",
}


def is_trace(file: Path) -> bool:
    return file.name.endswith(SUFFIX) and not file.is_symlink() and file.is_file()


def rank_of(path: Path) -> int:
    return rank_of_name(path, _RANK, "Chakra trace", "chakra.3.et")


def gaps() -> Iterator[str]:
    """Sentences on what such traces do not say."""
    yield "Chakra traces contain no values, exits or stacks: only whether the calls of all ranks match is told"


def name_world(traced: Sequence[TracedRank], ranks: Iterable[int]) -> Iterator[str]:
    """Makes the calls of traces that name no group calls of all `ranks`, as ASTRA-sim takes them. Sentences on that."""
    calls = [call for each in traced for call in each.calls]
    if not calls:
        yield "the traces contain no collective or message: there is nothing to compare"
    elif not any(call.group for call in calls) and not any(each.groups for each in traced):
        world = Group(name=_WORLD, ranks=tuple(sorted(ranks)))
        for each in traced:
            each.groups[_WORLD] = world
        for call in calls:
            call.group = _WORLD
        yield "the traces name no groups: each call is taken for one of all ranks that have a trace here"


def read_trace(path: Path, rank: int, of_job: JobGroups) -> TracedRank:
    """Raises `CapsuleError` for what is damaged or too large."""
    calls, groups = [], dict(of_job.of_file(path.with_name(GROUPS_FILE), _groups))
    places = _Places()
    for node in _nodes(path):
        if node.type == METADATA and node.name == execution_trace.OF_GROUPS:
            for name, group in execution_trace.groups_of(_listed(node), str(path), of_job).items():
                groups.setdefault(name, group)
        if node.type in (COLLECTIVE, SEND, RECV) and (call := _call(node, groups, places)) is not None:
            calls.append(call)
        if len(calls) > MOST_CALLS:
            raise CapsuleError(f"{path} has more than {MOST_CALLS} calls", hint="write fewer steps (--last)")
    for call in calls:
        if call.group:
            groups.setdefault(call.group, Group(name=call.group, ranks=()))
    return TracedRank(
        rank=rank, calls=sorted(calls, key=lambda call: call.issued_ns), groups=groups, wall_offset_ns=0, steps=[]
    )


def _nodes(path: Path) -> Iterator[Any]:
    with json_stream.opened(path) as file:
        try:
            found = bodies(file, MAX_NODE_BYTES)
            messages().metadata.FromString(next(found, b""))
            for number, body in enumerate(found):
                if number >= MOST_NODES:
                    raise CapsuleError(f"{path} has more than {MOST_NODES} nodes", hint="write fewer steps (--last)")
                yield messages().node.FromString(body)
        except (ValueError, DecodeError, OSError, EOFError, zlib.error) as error:
            raise CapsuleError(
                f"{path} is not a Chakra execution trace: {error}", hint="fetch it again, or remove it"
            ) from None


def _groups(path: Path) -> dict[str, Group]:
    """Of ASTRA-sim's file: members by number. Empty where there is none."""
    if not path.is_file() or path.is_symlink():
        return {}
    listed = checked_json.parse(checked_json.read_bytes(path, limit_bytes=MAX_JSON_BYTES), str(path))
    groups = {name: Group(name=name, ranks=listed.ranks(name)) for name in listed.value}
    if max((max(group.ranks, default=0) for group in groups.values()), default=0) >= MAX_IMPORTED_RANKS:
        raise CapsuleError(
            f"{path} has a rank above {MAX_IMPORTED_RANKS - 1:,}", hint="fetch it again: it is damaged or was altered"
        )
    return groups


def _listed(node: Any) -> str:
    """PyTorch's list of groups, a text of JSON, out of Python's text of a list that has only this text."""
    found: str = node.inputs.values
    return found.removeprefix("['").removesuffix("']")


def _call(node: Any, groups: Mapping[str, Group], places: _Places) -> TracedCall | None:
    told = _attributes(node)
    op = _op(node, told)
    if op is None or max(node.start_time_micros, node.duration_micros) > _MAX_US:
        return None
    group = _text(told.get("pg_name"))
    issued_ns = node.start_time_micros * 1000
    inputs, outputs = _tensors(node.inputs), _tensors(node.outputs)
    size = told.get("comm_size")
    if not inputs and not outputs and isinstance(size, int) and 0 <= size < 2**62:
        inputs = (TensorMeta((size,), "uint8"),)
    members = groups[group].ranks if group in groups else ()
    return TracedCall(
        op=op,
        group=group,
        seq=_whole(told.get("seq")) if node.type == COLLECTIVE else None,
        root=_root(node, told, members, places),
        tag=_whole(told.get("comm_tag")) or 0,
        is_async=told.get("is_async") is True,
        inputs=inputs,
        outputs=outputs,
        issued_ns=issued_ns,
        left_ns=issued_ns,
        ended_ns=issued_ns + node.duration_micros * 1000,
        thread=0,
    )


def _attributes(node: Any) -> dict[str, str | int | bool]:
    found = {}
    for attribute in node.attr:
        if (kind := attribute.WhichOneof("value")) is not None:
            found[attribute.name] = getattr(attribute, kind)
    return found


def _op(node: Any, told: Mapping[str, Any]) -> str | None:
    if (op := told.get("op")) in OPS:
        return str(op)
    if node.type in (SEND, RECV):
        return "send" if node.type == SEND else "recv_"
    kind = told.get("comm_type")
    is_known = isinstance(kind, int) and 0 <= kind < len(COLLECTIVES)
    return _OPS[COLLECTIVES[kind]] if is_known and isinstance(kind, int) else None


class _Places:
    """Of the members in their groups, looked for once for each list of members: traces have many messages."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[int, ...], dict[int, int]]] = {}

    def of(self, rank: int, members: tuple[int, ...]) -> int | None:
        if id(members) not in self._known:  # with the list itself, so that no other one gets its id
            self._known[id(members)] = members, {member: place for place, member in enumerate(members)}
        return self._known[id(members)][1].get(rank)


def _root(node: Any, told: Mapping[str, Any], members: tuple[int, ...], places: _Places) -> int:
    if node.type == COLLECTIVE:
        root = _whole(told.get("root"))
        return -1 if root is None else root
    peer = _whole(told.get("comm_dst" if node.type == SEND else "comm_src"))
    if peer is None:
        return -1
    place = places.of(peer, members)
    return peer if place is None else place


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_IMPORTED_RANKS else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _tensors(info: Any) -> tuple[TensorMeta, ...]:
    """Of PyTorch's lists of arguments, where most are no tensors: `[[2, 3], []]` and `["Tensor(float)", "Int"]`."""
    try:
        shapes, types = json.loads(info.shapes or "[]"), json.loads((info.types or "[]").replace("'", '"'))
    except (ValueError, RecursionError):
        return ()
    if not isinstance(shapes, list) or not isinstance(types, list) or len(shapes) > MAX_TENSORS:
        return ()
    tensors = [each for shape, kind in zip(shapes, types, strict=False) for each in _argument(shape, kind)]
    return tuple(tensors) if all(prod(each.shape) < 2**62 for each in tensors) else ()


def _argument(shape: object, kind: object) -> Iterator[TensorMeta]:
    """A tensor, or a list of them: `[[2, 3]]` and `GenericList[Tensor(float)]`."""
    if not isinstance(shape, list) or not isinstance(kind, str):
        return
    shapes = [shape] if kind.startswith("Tensor(") else shape
    for each, name in zip(shapes, execution_trace.TENSOR.findall(kind), strict=False):
        if (
            isinstance(each, list)
            and len(each) <= MAX_DIMENSIONS
            and all(type(size) is int and 0 <= size < 2**31 for size in each)
        ):
            yield TensorMeta(tuple(each), known_dtype(name))
