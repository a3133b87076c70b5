"""What each message of a replayed rank must be. Its client checks every event and every reply against this, once; what
is not listed is nothing that a client uses.

`NotRequired`: older agents do not send it, or it is sent only sometimes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Annotated, Any, NotRequired, TypedDict

from prismdbg.model.breakpoints import MAX_LOGGED
from prismdbg.model.shapes import Count, MomentText, ShapeError, between, check
from prismdbg.protocol.values import MAX_THREADS
from prismdbg.protocol.wire import InvalidMessage, Message

MAX_HITS, MAX_DIGESTS, MAX_MEMBERS, MAX_HISTORY, MAX_DIMENSIONS = 100_000, 16, 4096, 64, 64
MAX_NAME = 2000  # of characters in what stands in a column of a table

Json = dict[str, Any]


def _is_scalar(value: object) -> str:
    return "must be a text, a number, true, false or null" if isinstance(value, list | dict) else ""


def _is_grid(value: object) -> str:
    """Nested lists of scalars."""
    if isinstance(value, list):
        return next(filter(None, map(_is_grid, value)), "")
    return _is_scalar(value)


def _are_pairs(second: Any) -> Callable[[list[Any]], str]:
    """A rule for a list of names with something each."""

    def rule(value: list[Any]) -> str:
        for place, item in enumerate(value):
            if not isinstance(item, list) or len(item) != 2:
                return f"[{place}] must be a pair"
            check(str, item[0], f"[{place}][0]")
            check(second, item[1], f"[{place}][1]")
        return ""

    return rule


def _at_most(count: int) -> Callable[[Any], str]:
    return lambda value: f"has {len(value)} parts, more than {count}" if len(value) > count else ""


def _are_of_a_tensor(sizes: list[int]) -> str:
    """torch's own strides have 64 bits, also beside a size of 0."""
    return "is larger than any tensor" if prod(max(size, 1) for size in sizes) >= 2**63 else ""


def _is_name(text: str) -> str:
    return f"is longer than {MAX_NAME} characters" if len(text) > MAX_NAME else ""


Scalar = Annotated[Any, _is_scalar]
Name = Annotated[str, _is_name]
Sizes = Annotated[list[Count], _at_most(MAX_DIMENSIONS), _are_of_a_tensor]
Line = Annotated[int, between(0, 2**31 - 1)]


class FrameFields(TypedDict):
    filename: str
    line: Line | None
    name: str


class Tally(TypedDict):
    """What was compared so far."""

    compared: Count
    fingerprints: Count
    synthesized: Count
    object_notes: NotRequired[Count]
    within: NotRequired[Count]
    unsketched: NotRequired[Count]
    farthest: NotRequired[Annotated[float, between(0, 1)]]
    again: NotRequired[Count]
    missing: NotRequired[Count]
    affected: NotRequired[MomentText | None]


class Call(TypedDict, total=False):
    """A collective, or an event between two of them (`kind`)."""

    kind: str
    profiling_name: str
    process_group: str
    group_title: str
    identity: str
    record_id: int
    op: str
    module: str
    inputs: list[str]
    outputs: list[str]
    reduce_op: str | None
    root: int | None
    tag: int | None
    is_async: bool
    size_bytes: Count
    device: str
    block: Count
    frames: list[FrameFields]


def _has(call: Json, *names: str) -> str:
    missing = [name for name in names if name not in call]
    return f"has no {missing[0]!r}" if missing else ""


def _is_shown(call: Json) -> str:
    size = ["size_bytes"] if call.get("kind", "op") != "op" else []
    return _has(call, "profiling_name", "process_group", *size)


def _is_shown_or_none(call: Json) -> str:
    """A rank may stand at no call."""
    return _is_shown(call) if call else ""


def _is_issued(call: Json) -> str:
    return _is_shown(call) or _has(call, "inputs", "outputs")


class RecordedCall(TypedDict):
    """A record of the log, as the story of a divergence has it."""

    moment: Name
    profiling_name: Name
    process_group: Name
    input_sizes: list[Sizes]
    input_dtypes: list[Name]
    output_sizes: list[Sizes]
    output_dtypes: list[Name]
    frames: list[FrameFields]
    reduce_op: NotRequired[str | None]
    root: NotRequired[int | None]
    tag: NotRequired[int | None]


def _has_types(call: Json) -> str:
    for kind in ("input", "output"):
        if len(call[f"{kind}_sizes"]) != len(call[f"{kind}_dtypes"]):
            return f"has not as many {kind}_sizes as {kind}_dtypes"
    return ""


class DifferenceFields(TypedDict):
    field: str
    expected: str
    actual: str
    structural: bool


class Left(TypedDict):
    """Where the rank left the record. `assumed`: because a peer is assumed to; then nothing differs."""

    moment: MomentText
    actual: Annotated[Call, _is_issued]
    assumed: NotRequired[bool]
    expected: NotRequired[Annotated[RecordedCall, _has_types] | None]
    differences: NotRequired[list[DifferenceFields]]
    history: NotRequired[Annotated[list[Annotated[RecordedCall, _has_types]], _at_most(MAX_HISTORY)] | None]
    tally: NotRequired[Tally]


def _tells_differences(story: Json) -> str:
    return "" if story.get("assumed") or "differences" in story else "lacks what differs"


Story = Annotated[Left, _tells_differences]


class NotedHit(TypedDict):
    moment: MomentText
    stop: int
    block: NotRequired[Count]
    backward: NotRequired[bool]


class Found(TypedDict):
    """An operator or a collective that a search found."""

    moment: MomentText
    op: str
    frames: list[FrameFields]


class FoundOrigin(Found):
    born: bool


def _by_number(left: Mapping[str, int]) -> str:
    wrong = [name for name in left if not (name.isascii() and name.isdigit() and len(name) <= 18)]
    return f"has {wrong[0][:40]!r}, which is not the number of a breakpoint" if wrong else ""


class Place(TypedDict):
    """Where the rank stands."""

    moment: MomentText
    number: NotRequired[Count]
    collective: NotRequired[Annotated[Call, _is_shown_or_none]]
    stops: NotRequired[list[int]]
    ignored: NotRequired[Annotated[dict[str, Count], _by_number]]
    answered: NotRequired[bool]
    place: NotRequired[Annotated[dict[Name, Name], _at_most(MAX_DIGESTS)] | None]
    hits: NotRequired[Annotated[list[NotedHit], _at_most(MAX_HITS)]]
    events: NotRequired[Count]
    events_before: NotRequired[Count]
    writer: NotRequired[Found | None]
    origin: NotRequired[FoundOrigin | None]


class Stopped(Place):
    reason: str


class WithTally(TypedDict):
    moment: MomentText
    tally: Tally


class Synthesized(TypedDict):
    moment: MomentText
    collective: Call


class Skipped(TypedDict):
    """`begun`: the step that follows. in_a_row: with this one, of those in which the same optimizer was due."""

    moment: MomentText
    begun: Count
    in_a_row: Count


class StateCompared(TypedDict):
    moment: MomentText
    equal: bool
    expected: str
    actual: str


class Raised(TypedDict):
    moment: MomentText
    type: str
    text: str
    traceback: list[str]
    thread: NotRequired[bool]


class Finished(WithTally):
    code: Annotated[int, between(-(2**31), 2**31 - 1)]
    hits: NotRequired[Annotated[list[NotedHit], _at_most(MAX_HITS)]]


class Hit(TypedDict):
    moment: MomentText
    stop: int
    collective: Annotated[Call, _is_shown]
    values: NotRequired[Annotated[list[Value], _at_most(MAX_LOGGED)]]


class BreakpointFailed(TypedDict):
    moment: MomentText
    stop: int
    error: str


class Note(TypedDict):
    text: str


EVENTS: Mapping[str, Any] = {
    "stopped": Stopped,
    "diverged": Story,
    "departed": Story,
    "synthesized": Synthesized,
    "skipped": Skipped,
    "end_of_log": WithTally,
    "all_compared": WithTally,
    "state": StateCompared,
    "exception": Raised,
    "finished": Finished,
    "hit": Hit,
    "stop_failed": BreakpointFailed,
    "note": Note,
}


class _Statistics(TypedDict):
    min: Scalar
    max: Scalar
    mean: Scalar
    std: Scalar
    nan: Scalar
    inf: Scalar


class _Histogram(TypedDict):
    low: float
    high: float
    counts: Annotated[list[Count], lambda counts: "" if counts else "is empty"]


class _Sharded(TypedDict):
    shape: list[Count]
    placements: list[str]


class _Tensor(TypedDict):
    dtype: str
    shape: list[Count]
    device: str
    requires_grad: bool
    stats: _Statistics | None
    sharded: NotRequired[_Sharded | None]


class _Measured(_Tensor):
    histogram: _Histogram | None
    values: Annotated[Any, _is_grid]
    slice: str


class _Scalar(TypedDict):
    """`is_float`: said of one that is not finite, whose value is a text."""

    type: str
    value: Scalar
    is_float: NotRequired[bool]


class _Sequence(TypedDict):
    type: str
    length: Count
    items: list[Value]


class _Mapping(TypedDict):
    type: str
    length: Count
    items: Annotated[list[Any], lambda items: _are_pairs(Value)(items)]


class _Object(TypedDict):
    type: str
    text: str
    fields: NotRequired[Annotated[list[Any], lambda fields: _are_pairs(Value)(fields)]]


class _Module(TypedDict):
    type: str
    training: bool
    parameters: Count
    trainable: Count
    own: Annotated[list[Any], _are_pairs(str)]
    children: Annotated[list[Any], _are_pairs(str)]


_KINDS: Mapping[str, Any] = {
    "scalar": _Scalar,
    "sequence": _Sequence,
    "mapping": _Mapping,
    "object": _Object,
    "module": _Module,
}


class _Rendered(TypedDict):
    kind: str
    digest: NotRequired[Name]
    hidden: NotRequired[list[str]]
    assumed: NotRequired[bool]


def _is_of_its_kind(value: Json) -> str:
    """A kind of a newer rank is shown as dots."""
    kind = value["kind"]
    if kind == "tensor":
        check(_Tensor if value.get("stats") is None else _Measured, value, "")
    elif kind in _KINDS:
        check(_KINDS[kind], value, "")
    return ""


Value = Annotated[_Rendered, _is_of_its_kind]


class Progress(Place):
    stopped: str | None
    tally: Tally


class Stack(TypedDict):
    frames: list[FrameFields]


class _Thread(TypedDict):
    thread: int
    name: Name
    frames: list[FrameFields]


class Threads(TypedDict):
    threads: Annotated[list[_Thread], _at_most(MAX_THREADS)]


class _NamedStack(TypedDict):
    name: str
    frames: list[FrameFields]


class Stacks(TypedDict):
    threads: Annotated[list[_NamedStack], _at_most(MAX_MEMBERS)]


class Source(TypedDict):
    filename: str
    line: Line | None
    first: Line
    lines: list[str]
    function: NotRequired[str]
    length: NotRequired[Count]


def _names_function(source: Json) -> str:
    return "does not say of which function its lines are" if source["lines"] and "function" not in source else ""


# An older rank does not say which are tensors.
LocalName = TypedDict("LocalName", {"from": str, "name": str, "type": str, "text": str, "tensor": NotRequired[bool]})


class Locals(TypedDict):
    locals: list[LocalName]


class Evaluated(TypedDict):
    value: Value


class Compared(TypedDict):
    equal: bool
    differing: Count
    elements: Count
    largest: float | None
    value: NotRequired[Value | None]


class Address(TypedDict):
    address: Annotated[Any, lambda value: "" if isinstance(value, int) and 0 <= value < 2**64 else "is not an address"]


class TensorBytes(TypedDict):
    """`data` in base64; `count` of them, of `bytes` in the whole tensor."""

    data: str
    count: Count
    bytes: Count
    address: Annotated[Any, lambda value: "" if isinstance(value, int) and 0 <= value < 2**64 else "is not an address"]
    dtype: NotRequired[Name]
    shape: NotRequired[Sizes]


class _Block(Found):
    size_bytes: Count
    is_before: bool


class Block(TypedDict):
    block: _Block | None


class _Member(TypedDict):
    rank: Count
    group_rank: Count
    role: Name
    arrived: Name


class Peers(TypedDict):
    group: str
    title: str
    size: Count
    members: Annotated[list[_Member], _at_most(MAX_MEMBERS)]
    recorded_ns: int | None


class History(TypedDict):
    moments: list[MomentText]


class Surroundings(TypedDict):
    surroundings: dict[str, str]
    unregistered: NotRequired[list[str]]
    synthesized: NotRequired[list[str]]


class Trace(TypedDict):
    on: bool
    path: NotRequired[str]
    records: NotRequired[Count]


class ChangedOver(TypedDict):
    record_id: Count


REPLIES: Mapping[str, Any] = {
    "progress": Progress,
    "stack": Stack,
    "threads": Threads,
    "stacks": Stacks,
    "source": Annotated[Source, _names_function],
    "locals": Locals,
    "evaluate": Evaluated,
    "difference": Compared,
    "address": Address,
    "bytes": TensorBytes,
    "block": Block,
    "peers": Peers,
    "history": History,
    "surroundings": Surroundings,
    "trace": Trace,
    "replay": ChangedOver,
}


def checked_event(event: Message) -> Message:
    """`event` itself; `InvalidMessage` where it is not what its kind must be. Of an unknown kind only that is used."""
    kind = event["event"]
    if not isinstance(kind, str):
        raise InvalidMessage("the rank sent an event without a name")
    return _checked(EVENTS.get(kind), event, f"event {kind!r}")


def checked_reply(verb: str, reply: Message) -> Message:
    """`reply` itself; `InvalidMessage` where it is not what the answer to `verb` must be."""
    return _checked(REPLIES.get(verb), reply, f"answer to {verb!r}")


def _checked(kind: Any, message: Message, what: str) -> Message:
    if kind is not None:
        try:
            check(kind, message, "")
        except ShapeError as error:
            raise InvalidMessage(
                f"the rank sent an invalid {what[:60]}: {str(error).removeprefix(': ')}",
                hint="do not trust this capsule: the program or the agent in it sends invalid messages",
            ) from None
    return message
