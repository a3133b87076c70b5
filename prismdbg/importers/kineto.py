"""Traces of torch.profiler (Kineto's Chrome JSON, plain or gzip, one file a rank) as the logs of a job.

Each call of a `c10d::` operator is an event. Backends that describe their transfers (NCCL's do) add an event
`record_param_comms` inside it, with group, sequence number and sizes; gloo adds one of the transfer's time. Steps are
those of the profiler's schedule, or else counted by the ends of the optimizer's steps.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from prismdbg.capsule import checked_json
from prismdbg.capsule.checked_json import Count
from prismdbg.capsule.limits import MAX_DIMENSIONS, MAX_IMPORTED_RANKS
from prismdbg.capsule.log.events import StepMark
from prismdbg.capsule.log.format import StepSource
from prismdbg.errors import CapsuleError
from prismdbg.importers import json_stream
from prismdbg.importers.job_groups import JobGroups
from prismdbg.importers.torch_names import OPS_BY_COMMS_NAME, OPS_BY_TITLE, UNKNOWN, device_of, known_dtype
from prismdbg.importers.traced_job import TracedCall, TracedRank
from prismdbg.model.collective import Frame, Group, TensorMeta
from prismdbg.model.ops import OPS, Movement, OpSpec

MOST_CALLS = 200_000
MOST_FRAMES = 1 << 21
_HEAD_BYTES = 4096
_MAX_NS = 1 << 62
_OF_OPS = "c10d::"
_OF_COMMS = "record_param_comms"
_STEP = re.compile(r"ProfilerStep#(\d{1,9})$")
_OPTIMIZER = "Optimizer.step#"
_FUNCTION = re.compile(r"(?P<file>[^(]+)\((?P<line>\d{1,9})\): (?P<name>.+)$")
# Of these the annotation's end is that of the transfer. NCCL's ends when its kernel is queued.
_BACKENDS_ON_CPU = ("gloo:", "mpi:", "ucc:")
_NUMBERS = ("Global rank start", "Global rank stride", "Group size")
_MOST_INNER = 64  # events of a rank's stack at one call


class _Group(TypedDict):
    pg_name: str
    pg_desc: NotRequired[str]
    backend_config: NotRequired[str]
    pg_size: NotRequired[Count]
    ranks: NotRequired[list[Count]]


class _Distributed(TypedDict):
    rank: Count
    world_size: NotRequired[Count]
    pg_config: NotRequired[list[_Group]]


class _Event(TypedDict):
    name: str
    ts: float
    dur: NotRequired[float]
    tid: int
    args: NotRequired[dict[str, Any]]


@dataclass(slots=True)
class _Span:
    """An event: times in ns since the trace's base."""

    name: str
    begin_ns: int
    end_ns: int
    thread: int
    args: Mapping[str, Any]

    def contains(self, other: _Span) -> bool:
        return self.thread == other.thread and self.begin_ns <= other.begin_ns and other.end_ns <= self.end_ns


@dataclass(slots=True)
class _Found:
    """Of one file, before its events are put together. annotated: transfers by the id of the function that they are;
    those without one are `unnumbered`. queued: ends of kernels, by the external id of the call that queued them.
    devices: by group, where its backend puts transfers."""

    header: dict[str, Any] = field(default_factory=dict)
    calls: list[_Span] = field(default_factory=list)
    comms: list[_Span] = field(default_factory=list)
    annotated: dict[int, _Span] = field(default_factory=dict)
    unnumbered: list[_Span] = field(default_factory=list)
    queued: dict[int, int] = field(default_factory=dict)
    steps: list[_Span] = field(default_factory=list)
    optimizer: list[_Span] = field(default_factory=list)
    has_functions: bool = False
    devices: dict[str, str] = field(default_factory=dict)


def is_trace(file: Path) -> bool:
    head = json_stream.head(file, _HEAD_BYTES)
    return head.lstrip().startswith(b"{") and (b'"traceEvents"' in head or b'"schemaVersion"' in head)


def read_trace(path: Path, rank: int, of_job: JobGroups) -> TracedRank:
    """The trace of a rank. Raises `CapsuleError` for what is damaged, too large, or does not say its rank."""
    found = _Found()
    for name, value in json_stream.members(path, {"traceEvents"}):
        if name == "traceEvents":
            _take(found, value, str(path))
        elif name in ("distributedInfo", "baseTimeNanoseconds", "host_name"):
            found.header[name] = value
    distributed = _distributed(found.header, path)
    listed = distributed.get("pg_config", [])
    found.devices = {each["pg_name"]: device_of(each.get("backend_config", "")) for each in listed}
    calls = [call for _, call in sorted(_calls(found), key=lambda pair: pair[0])]
    if found.has_functions and calls:
        _add_frames(path, calls)
    return TracedRank(
        rank=rank,
        calls=calls,
        groups=_groups(distributed, found, of_job),
        steps=_steps(found),
        wall_offset_ns=_base_ns(found.header, path),
        host=_text(found.header.get("host_name")),
        world_size=distributed.get("world_size", 0),
    )


def gaps(ranks: Iterable[TracedRank]) -> Iterator[str]:
    """Sentences on what such traces do not say."""
    yield "profiler traces contain no values, no exits and not the whole job: hangs, crashes and NaN are not found"
    traced = list(ranks)
    if bare := [each.rank for each in traced if not each.steps]:
        few = ", ".join(map(str, bare[:8]))
        yield f"the trace of rank {few} has no steps: record with a schedule and profiler.step()"
    if bare := [each.rank for each in traced if each.calls and not any(call.frames for call in each.calls)]:
        yield f"the trace of rank {', '.join(map(str, bare[:8]))} has no stacks: record with with_stack=True"


def rank_of(path: Path) -> int:
    """As the trace says it, from its beginning: torch writes it before the events."""
    for name, value in json_stream.members(path, {"traceEvents"}):
        if name == "distributedInfo":
            return _distributed({name: value}, path)["rank"]
        if name == "traceEvents":
            break
    raise _no_rank(path)


def _no_rank(path: Path) -> CapsuleError:
    return CapsuleError(
        f"{path} does not say its rank: it has no distributedInfo",
        hint="record a rank of a job that has called init_process_group, with torch 2.1 or newer",
    )


def _distributed(header: Mapping[str, Any], path: Path) -> _Distributed:
    if "distributedInfo" not in header:
        raise _no_rank(path)
    found = checked_json.checked(_Distributed, header["distributedInfo"], f"{path}: distributedInfo")
    ranks = (rank for group in found.get("pg_config", []) for rank in group.get("ranks", []))
    if max(found["rank"] + 1, found.get("world_size", 0), max(ranks, default=0) + 1) > MAX_IMPORTED_RANKS:
        most = MAX_IMPORTED_RANKS - 1
        raise CapsuleError(f"{path}: distributedInfo has a rank above {most:,}", hint="record the trace again")
    return found


def _base_ns(header: Mapping[str, Any], path: Path) -> int | None:
    base = header.get("baseTimeNanoseconds")
    return None if base is None else checked_json.checked(int, base, f"{path}: baseTimeNanoseconds")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _take(found: _Found, value: Any, where: str) -> None:
    """Keeps an event that says something of calls."""
    name = value.get("name") if isinstance(value, dict) and value.get("ph") == "X" else None
    if not isinstance(name, str) or value.get("cat") == "gpu_user_annotation":  # a copy, of the time of its kernels
        return
    if value.get("cat") == "python_function":
        found.has_functions = True
    elif name.startswith(_OF_OPS):
        _keep(found.calls, value, where)
    elif name == _OF_COMMS:
        _keep(found.comms, value, where)
    elif name.startswith(_BACKENDS_ON_CPU):
        if number := _number(span := _span(value, where), "Record function id"):
            found.annotated[number] = span
        else:
            _keep(found.unnumbered, value, where)
    elif value.get("cat") == "kernel" and "Collective name" in _object(value.get("args")):
        if (span := _span(value, where)) and (number := _number(span, "External id")) is not None:
            found.queued[number] = max(found.queued.get(number, 0), span.end_ns)
    elif _STEP.match(name):
        _keep(found.steps, value, where)
    elif name.startswith(_OPTIMIZER):
        _keep(found.optimizer, value, where)


def _keep(spans: list[_Span], value: Any, where: str) -> None:
    if len(spans) >= MOST_CALLS:
        raise CapsuleError(f"{where} has more than {MOST_CALLS} calls", hint="record fewer steps")
    spans.append(_span(value, where))


def _span(value: Any, where: str) -> _Span:
    event = checked_json.checked(_Event, value, f"{where}: {str(value.get('name'))[:60]!r}")
    begin_ns, lasted_ns = round(event["ts"] * 1000), round(event.get("dur", 0.0) * 1000)
    if not 0 <= begin_ns <= _MAX_NS or not 0 <= lasted_ns <= _MAX_NS:
        raise CapsuleError(
            f"{where}: {event['name'][:60]!r} has a time out of bounds", hint="record it again: it is damaged"
        )
    return _Span(event["name"], begin_ns, begin_ns + lasted_ns, event["tid"], event.get("args", {}))


def _number(span: _Span, name: str) -> int | None:
    """A whole number of 64 bits."""
    value = span.args.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_NS else None


def _calls(found: _Found) -> Iterator[tuple[tuple[int, int], TracedCall]]:
    """With what they are sorted by: time and place."""
    inside = _by_outer(found)
    unnumbered = _unnumbered_works(found)
    described = {id(comms) for comms in inside.values()}
    for place, span in enumerate(found.calls):
        if (spec := OPS.get(op := span.name.removeprefix(_OF_OPS))) is None:
            continue  # no transfer: `c10d::record_param_comms_`, say
        yield (span.begin_ns, place), _call(op, spec, span, inside.get(place), unnumbered.get(place), found)
    for place, comms in enumerate(found.comms):  # of a program that calls a backend by itself
        op = OPS_BY_COMMS_NAME.get(_text(comms.args.get("Collective name")), "")
        if id(comms) not in described and op:
            yield (comms.begin_ns, len(found.calls) + place), _call(op, OPS[op], comms, comms, None, found)


def _by_outer(found: _Found) -> dict[int, _Span]:
    """For each call, by its place, the first description inside it that is of a call (not of a wait)."""
    found.comms.sort(key=lambda span: (span.thread, span.begin_ns))
    of_calls = [span for span in found.comms if _text(span.args.get("Collective name")) in OPS_BY_COMMS_NAME]
    keys = [(span.thread, span.begin_ns) for span in of_calls]
    inside = {}
    for place, call in enumerate(found.calls):
        at = bisect_left(keys, (call.thread, call.begin_ns))
        if at < len(keys) and call.contains(of_calls[at]):
            inside[place] = of_calls[at]
    return inside


def _unnumbered_works(found: _Found) -> dict[int, _Span]:
    """For each call, by its place, its transfer where functions have no ids: the n-th that does what the n-th call
    does.

    torch numbers functions only while an observer of execution traces is registered; else each id is 0."""
    transfers: dict[Movement, list[_Span]] = {}
    for transfer in sorted(found.unnumbered, key=lambda span: span.begin_ns):
        transfers.setdefault(_movement(transfer), []).append(transfer)
    calls: dict[Movement, list[int]] = {}
    for place in sorted(range(len(found.calls)), key=lambda place: found.calls[place].begin_ns):
        if spec := OPS.get(found.calls[place].name.removeprefix(_OF_OPS)):
            calls.setdefault(spec.movement, []).append(place)
    works: dict[int, _Span] = {}
    for movement, places in calls.items():
        works |= _in_order(found, places, transfers.get(movement, []))
    return works


def _in_order(found: _Found, places: list[int], transfers: list[_Span]) -> dict[int, _Span]:
    """Nothing where one is missing: then all that follow it would be another's.

    The threads of one group begin what it was given in its order. Those of several do not: there, a transfer is a
    call's only if no other call could have made it, as each before had begun its own, and the next was not made yet."""
    begins = [found.calls[place].begin_ns for place in places]
    if len(begins) != len(transfers):
        return {}
    if any(transfer.begin_ns < begin_ns for begin_ns, transfer in zip(begins, transfers, strict=True)):
        return {}
    is_of_one_group = len(found.header.get("distributedInfo", {}).get("pg_config", [])) == 1
    works, before_ns = {}, -1
    for place, begin_ns, next_ns, transfer in zip(places, begins, [*begins[1:], _MAX_NS], transfers, strict=True):
        if is_of_one_group or (before_ns < begin_ns and transfer.begin_ns < next_ns):
            works[place] = transfer
        before_ns = transfer.begin_ns
    return works


def _call(
    op: str, spec: OpSpec, span: _Span, comms: _Span | None, unnumbered: _Span | None, found: _Found
) -> TracedCall:
    work = _work(span, spec, found) or unnumbered
    dtype = known_dtype(_text(comms.args.get("dtype"))) if comms is not None else UNKNOWN
    inputs, outputs = _tensors(span, spec.inputs, dtype), _tensors(span, spec.outputs, dtype)
    if work is not None:
        inputs = _typed(inputs, work)
        outputs = _typed(outputs, work)
    if comms is not None:
        inputs = inputs or _flat(comms, "In msg nelems", dtype, spec.inputs)
        outputs = outputs or _flat(comms, "Out msg nelems", dtype, spec.outputs)
    queued = found.queued.get(_number(comms, "External id") or -1) if comms is not None else None
    group = _text(comms.args.get("Process Group Name")) if comms is not None else ""
    device = _device(found.devices.get(group, "cpu"), has_kernel=queued is not None, is_gloos=work is not None)
    return TracedCall(
        op=op,
        group=group,
        seq=_number(comms, "Seq") if comms is not None and not spec.is_p2p else None,
        root=_root(span, spec, comms),
        tag=_argument(span, spec.tag) or 0,
        is_async=_is_async(span, spec, comms),
        inputs=tuple(replace(each, device=device) for each in inputs),
        outputs=tuple(replace(each, device=device) for each in outputs),
        issued_ns=span.begin_ns,
        left_ns=span.end_ns,
        ended_ns=work.end_ns if work is not None else queued,
        thread=span.thread & (2**63 - 1),
        function_id=_number(span, "Record function id") or None,
    )


def _device(of_group: str, *, has_kernel: bool, is_gloos: bool) -> str:
    """Of a group that has a backend for a device and gloo, gloo's calls have transfers in the trace."""
    if has_kernel:
        return of_group if of_group != "cpu" else "cuda"
    return "cpu" if is_gloos else of_group


def _work(span: _Span, spec: OpSpec, found: _Found) -> _Span | None:
    """The transfer that gloo made of it: the next function that was recorded, if it has that title."""
    number = _number(span, "Record function id")
    work = found.annotated.get(number + 1) if number else None
    return work if work is not None and _movement(work) is spec.movement else None


def _movement(transfer: _Span) -> Movement:
    return OPS[OPS_BY_TITLE.get(transfer.name.partition(":")[2], "barrier")].movement


def _argument(span: _Span, place: int | None) -> int | None:
    """A number that the operator was called with."""
    values = span.args.get("Concrete Inputs")
    if place is None or not isinstance(values, list) or place >= len(values):
        return None
    text = values[place]
    is_number = isinstance(text, str) and re.fullmatch(r"-?\d{1,9}", text)
    return int(text) if is_number else None


def _root(span: _Span, spec: OpSpec, comms: _Span | None) -> int:
    if spec.root is None:
        return -1
    given = _argument(span, spec.root)
    if given is None and comms is not None:
        names = ("Dst Rank", "Src Rank") if spec.is_p2p else ("Rank",)
        given = next((number for name in names if (number := _number(comms, name)) is not None), None)
    return -1 if given is None or not 0 <= given < MAX_IMPORTED_RANKS else given


def _is_async(span: _Span, spec: OpSpec, comms: _Span | None) -> bool:
    values = span.args.get("Concrete Inputs")
    if spec.async_op is not None and isinstance(values, list) and spec.async_op < len(values):
        return bool(values[spec.async_op] == "True")
    return bool(_number(comms, "Is asynchronized op")) if comms is not None else spec.is_p2p


def _tensors(span: _Span, place: int | None, dtype: str) -> tuple[TensorMeta, ...]:
    """Of one argument: a tensor, or a list of them of which only the sizes are told."""
    sizes, types = span.args.get("Input Dims"), span.args.get("Input type")
    if place is None or not isinstance(sizes, list) or not isinstance(types, list):
        return ()
    if place >= min(len(sizes), len(types)) or not isinstance(kind := types[place], str) or not kind:
        return ()
    shapes = sizes[place] if kind == "TensorList" else [sizes[place]]
    named = known_dtype(kind)
    return tuple(
        TensorMeta(tuple(shape), dtype if named == UNKNOWN else named)
        for shape in (shapes if isinstance(shapes, list) else ())
        if isinstance(shape, list)
        and len(shape) <= MAX_DIMENSIONS
        and all(isinstance(size, int) and 0 <= size < _MAX_NS for size in shape)
    )


def _typed(tensors: tuple[TensorMeta, ...], work: _Span) -> tuple[TensorMeta, ...]:
    """With the element types of the transfer's tensors, where the call's list does not say them."""
    types = work.args.get("Input type")
    named = known_dtype(types[0]) if isinstance(types, list) and types and isinstance(types[0], str) else UNKNOWN
    return tuple(replace(each, dtype=named) if each.dtype == UNKNOWN else each for each in tensors)


def _flat(comms: _Span, name: str, dtype: str, place: int | None) -> tuple[TensorMeta, ...]:
    """All elements together, where no shapes are told."""
    number = _number(comms, name)
    return (TensorMeta((number,), dtype),) if place is not None and number is not None and number >= 0 else ()


def _groups(distributed: _Distributed, found: _Found, of_job: JobGroups) -> dict[str, Group]:
    groups = {
        each["pg_name"]: Group(
            name=each["pg_name"],
            ranks=tuple(dict.fromkeys(each.get("ranks", []))),
            desc=each.get("pg_desc", ""),
            backend=each.get("backend_config", ""),
        )
        for each in distributed.get("pg_config", [])
    }
    for comms in found.comms:
        name = _text(comms.args.get("Process Group Name"))
        if name and (name not in groups or not groups[name].ranks):
            groups[name] = Group(
                name=name, ranks=_members(name, comms, of_job), desc=_text(comms.args.get("Process Group Description"))
            )
    return groups


def _members(name: str, comms: _Span, of_job: JobGroups) -> tuple[int, ...]:
    """As listed; torch cuts long lists, and then those with the first member and a stride are told."""
    text = _text(comms.args.get("Process Group Ranks"))
    if "..." not in text:
        ranks = (int(number) for number in re.findall(r"\d{1,8}", text))
        return tuple(dict.fromkeys(rank for rank in ranks if rank < MAX_IMPORTED_RANKS))
    start, stride, size = (_number(comms, number) or 0 for number in _NUMBERS)
    return of_job.members(name, start, stride, size)


def _steps(found: _Found) -> list[StepMark]:
    """By the profiler's own numbers. Without a schedule: a step begins where the optimizer's has ended, counted from
    the beginning of the trace."""
    numbered: dict[int, int] = {}
    for span in sorted(found.steps, key=lambda span: span.begin_ns):
        step = int(span.name.partition("#")[2])
        numbered |= {step: span.begin_ns, step + 1: span.end_ns}
    if numbered:
        return [StepMark(step, begin_ns, StepSource.MANUAL) for step, begin_ns in sorted(numbered.items())]
    first = found.optimizer[0].name if found.optimizer else ""
    ends = sorted(span.end_ns for span in found.optimizer if span.name == first)
    return [StepMark(number, end_ns, StepSource.OPTIMIZER) for number, end_ns in enumerate(ends, start=1)]


def _add_frames(path: Path, calls: list[TracedCall]) -> None:
    """Reads the file again for the Python functions in which the calls were made, with memory for those alone."""
    by_thread: dict[int, list[TracedCall]] = {}
    for call in calls:
        by_thread.setdefault(call.thread, []).append(call)
    stacks = {thread: _Stacks(each) for thread, each in by_thread.items()}
    room = MOST_FRAMES
    for name, value in json_stream.members(path, {"traceEvents"}):
        if name != "traceEvents" or not isinstance(value, dict) or value.get("cat") != "python_function":
            continue
        span = _span(value, str(path))
        if (frame := _frame(span.name)) is not None and span.thread in stacks:
            room -= stacks[span.thread].add(span, frame, room)
    for each in stacks.values():
        each.tell()


class _Stacks:
    """Of the calls of one thread. A function that many calls were made in skips those whose stacks are full: else a
    trace of functions and calls takes a time that grows with the product of both."""

    def __init__(self, calls: list[TracedCall]) -> None:
        self._calls = calls
        self._times = [call.issued_ns for call in calls]
        self._frames: list[list[tuple[int, Frame]]] = [[] for _ in calls]
        self._next = list(range(len(calls) + 1))  # itself, or one that comes no later than the next that is not full

    def add(self, span: _Span, frame: Frame, room: int) -> int:
        """To all calls in `span`, to no more than `room`. To how many."""
        added, until = 0, bisect_right(self._times, span.end_ns)
        at = self._open(bisect_left(self._times, span.begin_ns))
        while at < until and added < room:
            self._frames[at].append((span.begin_ns, frame))
            added += 1
            if len(self._frames[at]) == _MOST_INNER:
                self._next[at] = at + 1
            at = self._open(at + 1)
        return added

    def _open(self, at: int) -> int:
        while self._next[at] != at:
            self._next[at] = self._next[self._next[at]]
            at = self._next[at]
        return at

    def tell(self) -> None:
        for call, frames in zip(self._calls, self._frames, strict=True):
            call.frames = tuple(frame for _, frame in sorted(frames, key=lambda pair: -pair[0]))


def _frame(name: str) -> Frame | None:
    """`train.py(12): step`. torch cuts the folders of `sys.path` off; what is torch's own is marked as installed."""
    if (found := _FUNCTION.match(name)) is None:
        return None
    file = found["file"]
    return Frame(f".../site-packages/{file}" if file.startswith("torch/") else file, int(found["line"]), found["name"])
