"""Nodes as columns of numbers, as `slice.json` holds them: one list for each field, texts and stacks once.

Group, op, reduce op, element type and stack are written as positions in their tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from prismdbg.capsule.json_border import Fields
from prismdbg.errors import CapsuleError
from prismdbg.graph.node import Node
from prismdbg.model.collective import Frame, Identity
from prismdbg.model.moment import Moment

NEVER = -1
_LARGEST = 2**63 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column:
    """A field that is a number as it is. `least`: what a reader accepts."""

    name: str
    value: Callable[[Node], int]
    least: int = 0


COLUMNS = (
    Column("record_id", lambda n: n.record_id),
    Column("step", lambda n: n.moment.step),
    Column("collective", lambda n: n.moment.collective),
    Column("seq", lambda n: n.identity.seq),
    Column("peer", lambda n: n.identity.peer, -1),
    Column("is_p2p", lambda n: int(n.is_p2p)),
    Column("is_async", lambda n: int(n.is_async)),
    Column("root", lambda n: n.root, -1),
    Column("tag", lambda n: n.tag, -_LARGEST),
    Column("sent_bytes", lambda n: n.sent_bytes),
    Column("received_bytes", lambda n: n.received_bytes),
    Column("thread", lambda n: n.thread),
    Column("issued_ns", lambda n: n.issued_ns),
    Column("completed_ns", lambda n: NEVER if n.completed_ns is None else n.completed_ns, NEVER),
    Column("has_failed", lambda n: int(n.has_failed)),
    Column("source_rank", lambda n: n.source_rank, -1),
)
# where one of the nodes has it
WAITED = Column("waited_ns", lambda n: NEVER if n.waited_ns is None else n.waited_ns, NEVER)
SYNTHESIZED = Column("synthesized", lambda n: int(n.synthesized))


def encode(nodes: Sequence[Node], groups: Sequence[str]) -> dict[str, Any]:
    """The tables and `columns`."""
    texts = list(dict.fromkeys(text for n in nodes for text in (n.op, n.reduce_op, n.dtype)))
    stacks = list(dict.fromkeys(n.frames for n in nodes))
    tables = {
        "group": _positions(groups, [n.identity.group for n in nodes]),
        "op": _positions(texts, [n.op for n in nodes]),
        "reduce_op": _positions(texts, [n.reduce_op for n in nodes]),
        "dtype": _positions(texts, [n.dtype for n in nodes]),
        "stack": _positions(stacks, [n.frames for n in nodes]),
    }
    return {
        "texts": texts,
        "stacks": [{"frames": [_frame_json(frame) for frame in stack]} for stack in stacks],
        "columns": {column.name: [column.value(n) for n in nodes] for column in _columns(nodes)} | tables,
    }


def decode(data: Fields, groups: Sequence[str]) -> tuple[Node, ...]:
    texts = data.texts("texts")
    stacks = [tuple(map(_frame, stack.objects("frames"))) for stack in data.objects("stacks")]
    columns = data.fields("columns")
    known = (*COLUMNS, *(column for column in (WAITED, SYNTHESIZED) if columns.has(column.name)))
    numbers = {column.name: _numbers(columns, column) for column in known}
    group = _looked_up(columns, "group", groups)
    op = _looked_up(columns, "op", texts)
    reduce_op = _looked_up(columns, "reduce_op", texts)
    dtype = _looked_up(columns, "dtype", texts)
    frames = _looked_up(columns, "stack", stacks)
    columns.refuse_others()
    lengths = {len(column) for column in (*numbers.values(), group, op, reduce_op, dtype, frames)}
    if len(lengths) != 1:
        raise CapsuleError(f"{columns.where}: columns differ in length", hint="the file was altered")
    return tuple(
        _node({name: column[i] for name, column in numbers.items()}, group[i], op[i], reduce_op[i], dtype[i], frames[i])
        for i in range(lengths.pop())
    )


def _node(n: dict[str, int], group: str, op: str, reduce_op: str, dtype: str, frames: tuple[Frame, ...]) -> Node:
    p2p = bool(n["is_p2p"])
    return Node(
        record_id=n["record_id"],
        moment=Moment(n["step"], n["collective"]),
        identity=Identity(group, n["seq"], op, n["peer"], n["tag"]) if p2p else Identity(group, n["seq"]),
        op=op,
        is_async=bool(n["is_async"]),
        root=n["root"],
        tag=n["tag"],
        reduce_op=reduce_op,
        dtype=dtype,
        sent_bytes=n["sent_bytes"],
        received_bytes=n["received_bytes"],
        thread=n["thread"],
        issued_ns=n["issued_ns"],
        completed_ns=None if n["completed_ns"] == NEVER else n["completed_ns"],
        has_failed=bool(n["has_failed"]),
        source_rank=n["source_rank"],
        frames=frames,
        waited_ns=None if n.get("waited_ns", NEVER) == NEVER else n["waited_ns"],
        synthesized=bool(n.get("synthesized", 0)),
    )


def _columns(nodes: Sequence[Node]) -> tuple[Column, ...]:
    waited = (WAITED,) if any(n.waited_ns is not None for n in nodes) else ()
    synthesized = (SYNTHESIZED,) if any(n.synthesized for n in nodes) else ()
    return (*COLUMNS, *waited, *synthesized)


def _positions(table: Sequence[T], values: Sequence[T]) -> list[int]:
    position = {value: i for i, value in enumerate(table)}
    return [position[value] for value in values]


def _numbers(columns: Fields, column: Column) -> tuple[int, ...]:
    values = columns.integers(column.name)
    if values and not column.least <= min(values) <= max(values) <= _LARGEST:
        columns.fail(column.name, f"holds a number below {column.least} or beyond 64 bits")
    return values


def _looked_up(columns: Fields, name: str, table: Sequence[T]) -> list[T]:
    positions = columns.integers(name)
    if positions and not 0 <= min(positions) <= max(positions) < len(table):
        columns.fail(name, f"points outside its table of {len(table)}")
    return [table[position] for position in positions]


def _frame_json(frame: Frame) -> dict[str, Any]:
    return {"filename": frame.filename, "line": frame.line, "name": frame.name}


def _frame(data: Fields) -> Frame:
    frame = Frame(data.text("filename"), data.integer("line"), data.text("name"))
    data.refuse_others()
    return frame
