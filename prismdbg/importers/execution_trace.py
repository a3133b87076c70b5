"""PyTorch execution traces (JSON of `torch.profiler.ExecutionTraceObserver`, one file a rank) as the logs of a job.

Each call of an operator is a node, with the sizes and types of all its tensors and no time. Nodes are numbered as they
begin: their numbers stand for times here, and say no more than an order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from prismdbg.capsule import checked_json
from prismdbg.capsule.checked_json import Count, between
from prismdbg.capsule.limits import MAX_DIMENSIONS, MAX_IMPORTED_RANKS, MAX_TENSORS
from prismdbg.capsule.log.events import StepMark
from prismdbg.capsule.log.format import StepSource
from prismdbg.errors import CapsuleError
from prismdbg.importers import json_stream
from prismdbg.importers.file_rank import rank_of_name
from prismdbg.importers.job_groups import JobGroups
from prismdbg.importers.torch_names import OPS_BY_COMMS_NAME, UNKNOWN, known_dtype
from prismdbg.importers.traced_job import TracedCall, TracedRank
from prismdbg.model.collective import Group, TensorMeta
from prismdbg.model.ops import OPS, OpSpec

MOST_CALLS = 200_000
OF_GROUPS = "## process_group:init ##"
TENSOR = re.compile(r"Tensor\(((?:[^()<>]|<[^<>]*>)*)\)")
_HEAD_BYTES = 4096
_SCHEMA = re.compile(rb'"schema"\s*:\s*"\d[\w.-]*"')
_RANK = re.compile(r"(\d{1,8})(?:\.[a-z]\w*)*$")
_OF_OPS = "c10d::"
_OF_COMMS = "record_param_comms"
_STEP = re.compile(r"ProfilerStep#(\d{1,9})$")
_OPTIMIZER = "Optimizer.step#"
_NUMBERS = ("global_rank_start", "global_rank_stride", "pg_size")
_DEEPEST = 4  # of lists in lists of tensors


class _Arguments(TypedDict):
    values: list[Any]
    shapes: list[Any]
    types: list[str]


class _Attribute(TypedDict):
    name: str
    value: NotRequired[Any]


class _Node(TypedDict):
    id: Count
    name: str
    ctrl_deps: Count
    inputs: _Arguments
    outputs: NotRequired[_Arguments]
    attrs: list[_Attribute]


class _Group(TypedDict):
    pg_name: str
    pg_desc: NotRequired[str]
    backend_config: NotRequired[str]
    ranks: NotRequired[list[Annotated[int, between(0, MAX_IMPORTED_RANKS - 1)]]]
    group_size: NotRequired[Annotated[int, between(0, MAX_IMPORTED_RANKS)]]


@dataclass(slots=True)
class _Found:
    """comms: by the node inside which they are."""

    calls: list[_Node] = field(default_factory=list)
    comms: dict[int, _Node] = field(default_factory=dict)
    groups: list[_Group] = field(default_factory=list)
    steps: dict[int, int] = field(default_factory=dict)
    optimizer: list[int] = field(default_factory=list)


def is_trace(file: Path) -> bool:
    head = json_stream.head(file, _HEAD_BYTES)
    return head.lstrip().startswith(b"{") and _SCHEMA.search(head) is not None


def rank_of(path: Path) -> int:
    """By the file's name, for the trace does not say it."""
    return rank_of_name(path, _RANK, "execution trace", "et_3.json")


def gaps() -> Iterator[str]:
    """Sentences on what such traces do not say."""
    yield "execution traces contain no times, values or stacks: only whether the calls of all ranks match is told"


def read_trace(path: Path, rank: int, of_job: JobGroups) -> TracedRank:
    """Raises `CapsuleError` for what is damaged or too large."""
    found = _Found()
    for name, value in json_stream.members(path, {"nodes"}):
        if name == "nodes":
            _take(found, value, str(path))
    found.calls.sort(key=lambda node: node["id"])
    groups = _groups(found, of_job)
    return TracedRank(
        rank=rank,
        calls=[_call(node, found.comms.get(node["id"])) for node in found.calls],
        groups=groups,
        steps=_steps(found),
        world_size=max((group.size for group in groups.values() if group.desc == "default_pg"), default=0),
    )


def _take(found: _Found, value: Any, where: str) -> None:
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str):
        return
    if name.startswith(_OF_OPS) and name.removeprefix(_OF_OPS) in OPS:
        found.calls.append(_node(value, where))
        if len(found.calls) > MOST_CALLS:
            raise CapsuleError(f"{where} has more than {MOST_CALLS} calls", hint="record fewer steps")
    elif name == _OF_COMMS and len(found.comms) <= MOST_CALLS:
        node = _node(value, where)
        if _attributes(node).get("collective_name") in OPS_BY_COMMS_NAME:
            found.comms.setdefault(node["ctrl_deps"], node)
    elif name == OF_GROUPS:
        found.groups += _listed(next(iter(_node(value, where)["inputs"]["values"]), ""), where)
    elif (step := _STEP.match(name)) is not None and len(found.steps) <= MOST_CALLS:
        found.steps[int(step[1])] = _node(value, where)["id"]
    elif name.startswith(_OPTIMIZER) and len(found.optimizer) <= MOST_CALLS:
        found.optimizer.append(_node(value, where)["id"])


def _node(value: Any, where: str) -> _Node:
    return checked_json.checked(_Node, value, f"{where}: node {str(value.get('name'))[:60]!r}")


def _attributes(node: _Node) -> dict[str, Any]:
    found = {each["name"]: each.get("value") for each in node["attrs"]}
    return {name: value for name, value in found.items() if isinstance(value, str | int)}


def groups_of(text: str, where: str, of_job: JobGroups) -> dict[str, Group]:
    """Of PyTorch's list of groups, by name. `CapsuleError` for what is none."""
    return _by_name(_listed(text, where), of_job)


def _listed(text: object, where: str) -> list[_Group]:
    try:
        groups = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        groups = None
    return checked_json.checked(list[_Group], groups, f"{where}: the groups")


def _by_name(listed: list[_Group], of_job: JobGroups) -> dict[str, Group]:
    """One without a list of members is the whole world, if it is as large."""
    world = max((each.get("group_size", 0) for each in listed), default=0)
    groups = {}
    for each in listed:
        is_world = not each.get("ranks") and each.get("group_size") == world
        name = each["pg_name"]
        ranks = of_job.members(name, 0, 1, world) if is_world else tuple(dict.fromkeys(each.get("ranks", [])))
        groups[name] = Group(
            name=name, ranks=ranks, desc=each.get("pg_desc", ""), backend=each.get("backend_config", "")
        )
    return groups


def _groups(found: _Found, of_job: JobGroups) -> dict[str, Group]:
    groups = _by_name(found.groups, of_job)
    for attributes in map(_attributes, found.comms.values()):
        name = attributes.get("pg_name")
        if isinstance(name, str) and (name not in groups or not groups[name].ranks):
            ranks = of_job.members(name, *_numbers(attributes))
            groups[name] = Group(name=name, ranks=ranks, desc=str(attributes.get("pg_desc", "")))
    return groups


def _numbers(attributes: Mapping[str, Any]) -> tuple[int, int, int]:
    """The first member, the stride and the size; 0 for what is not told."""
    start, stride, size = (_whole(attributes.get(name)) or 0 for name in _NUMBERS)
    return start, stride, size


def _whole(value: object) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return value if is_whole and isinstance(value, int) else None


def _call(node: _Node, comms: _Node | None) -> TracedCall:
    op = node["name"].removeprefix(_OF_OPS)
    spec = OPS[op]
    attributes = _attributes(comms) if comms is not None else {}
    group = attributes.get("pg_name", "")
    root = _whole(_value(node, spec.root))
    return TracedCall(
        op=op,
        group=group if isinstance(group, str) else "",
        seq=_sequence(comms) if comms is not None and not spec.is_p2p else None,
        root=root if root is not None and 0 <= root < MAX_IMPORTED_RANKS else -1,
        tag=_tag(node, spec),
        is_async=_value(node, spec.async_op) is True,
        inputs=tensors_of(node["inputs"], spec.inputs),
        outputs=tensors_of(node["inputs"], spec.outputs),
        issued_ns=node["id"],
        left_ns=node["id"],
        ended_ns=None,
        thread=_whole(_attributes(node).get("tid")) or 0,
        function_id=_whole(_attributes(node).get("rf_id")),
    )


def _tag(node: _Node, spec: OpSpec) -> int:
    tag = _whole(_value(node, spec.tag)) or 0
    return tag if 0 <= tag < 2**31 else 0


def _value(node: _Node, place: int | None) -> Any:
    values = node["inputs"]["values"]
    return values[place] if place is not None and place < len(values) else None


def _sequence(comms: _Node) -> int | None:
    """The pair of a number and whether it is of messages."""
    arguments = comms["inputs"]
    for value, kind in zip(arguments["values"], arguments["types"], strict=False):
        if kind == "Tuple[Int,Bool]" and isinstance(value, list) and value:
            number = _whole(value[0])
            return number if number is None or number >= 0 else None
    return None


def tensors_of(arguments: _Arguments, place: int | None) -> tuple[TensorMeta, ...]:
    """Of one argument: a tensor, or lists of them, all in order."""
    if place is None or place >= min(len(arguments[name]) for name in ("values", "shapes", "types")):
        return ()
    types = [known_dtype(name) for name in TENSOR.findall(arguments["types"][place])]
    leaves = list(_leaves(arguments["values"][place], arguments["shapes"][place], 0))[:MAX_TENSORS]
    names = [*types, *[types[-1] if types else UNKNOWN] * len(leaves)]
    return tuple(TensorMeta(shape, name, device) for (shape, device), name in zip(leaves, names, strict=False))


def _leaves(values: Any, shapes: Any, depth: int) -> Iterator[tuple[tuple[int, ...], str]]:
    """Shape and device. A tensor is `[id, storage, offset, elements, bytes of an element, device]`."""
    if not isinstance(values, list) or not isinstance(shapes, list) or depth > _DEEPEST:
        return
    if len(values) == 6 and isinstance(values[-1], str):
        if len(shapes) <= MAX_DIMENSIONS and all(isinstance(size, int) and 0 <= size < 2**62 for size in shapes):
            yield tuple(shapes), values[-1][:40]
        return
    for value, shape in zip(values, shapes, strict=False):
        yield from _leaves(value, shape, depth + 1)


def _steps(found: _Found) -> list[StepMark]:
    """As those of a profiler's trace; a step's end is not told, so the last one lasts on."""
    if found.steps:
        return [StepMark(step, at, StepSource.MANUAL) for step, at in sorted(found.steps.items(), key=lambda s: s[1])]
    begun = sorted(found.optimizer)
    return [StepMark(number, at, StepSource.OPTIMIZER) for number, at in enumerate(begun, start=1)]
