"""What an expression is once read: nodes with the column they stand at. Values only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Literal:
    column: int
    value: int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Name:
    column: int
    name: str


@dataclass(frozen=True, slots=True)
class Attribute:
    column: int
    owner: Node
    name: str


@dataclass(frozen=True, slots=True)
class Slice:
    """Only inside an index. An absent part is None."""

    column: int
    start: Node | None
    stop: Node | None
    step: Node | None


@dataclass(frozen=True, slots=True)
class Index:
    """`owner[keys]`; several keys are a tuple, as for tensors."""

    column: int
    owner: Node
    keys: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the closed table; there is no other call."""

    column: int
    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list or tuple written out; both evaluate to a tuple."""

    column: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Unary:
    """`-`, `+` or `not`."""

    column: int
    sign: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Arithmetic:
    column: int
    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Comparison:
    """`first < a <= b ...`, as in Python: every neighbouring pair must hold."""

    column: int
    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Logic:
    """`and` or `or` of two or more operands, evaluated from the left until it is decided."""

    column: int
    word: str
    operands: tuple[Node, ...]


Node = Literal | Name | Attribute | Slice | Index | Call | Sequence | Unary | Arithmetic | Comparison | Logic


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Attribute():
            return (node.owner,)
        case Slice():
            return tuple(part for part in (node.start, node.stop, node.step) if part is not None)
        case Index():
            return (node.owner, *node.keys)
        case Call():
            return node.arguments
        case Sequence():
            return node.items
        case Unary():
            return (node.operand,)
        case Arithmetic():
            return (node.left, node.right)
        case Comparison():
            return (node.first, *(operand for _, operand in node.rest))
        case Logic():
            return node.operands
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(children(current))


def height(node: Node) -> int:
    """Levels of the tree, without recursion."""
    level, deepest = [node], 0
    while level:
        deepest += 1
        level = [child for parent in level for child in children(parent)]
    return deepest
