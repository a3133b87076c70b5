"""Whether the two sides of a comparison can be compared at all, as far as it is known before anything runs. Pure."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise

from prismdbg.expr import tree
from prismdbg.expr.parser import Expression
from prismdbg.expr.place import complaint


class Kind(StrEnum):
    TEXT = "text"
    NUMBER = "a number"


_TEXTS = ("op", "outer_op", "group", "axis", "dtype", "moment", "module", "file", "reason", "exception", "type", "text")
_NUMBERS = ("seq", "bytes", "size", "allocated", "total", "step", "collective", "line", "peer")
OF_NAMES = dict.fromkeys(_TEXTS, Kind.TEXT) | dict.fromkeys(_NUMBERS, Kind.NUMBER)
_ORDERED = frozenset(["<", "<=", ">", ">="])
_COMPARED = _ORDERED | {"==", "!="}


def check_kinds(expression: Expression, names: frozenset[str]) -> None:
    """`UsageError` with a caret where text is compared with a number. names: those of the event; of all others nothing
    is known."""
    for node in tree.walk(expression.root):
        if not isinstance(node, tree.Comparison):
            continue
        signs = [sign for sign, _ in node.rest]
        operands = [node.first, *(operand for _, operand in node.rest)]
        for sign, (left, right) in zip(signs, pairwise(operands), strict=True):
            kinds = kind_of(left, names), kind_of(right, names)
            if sign not in _COMPARED or None in kinds or kinds[0] == kinds[1]:
                continue
            what = "cannot be ordered against" if sign in _ORDERED else "never equals"
            raise complaint(expression.text, right.column, f"{kinds[0]} {what} {kinds[1]}", hint=_hint(left, right))


def kind_of(node: tree.Node, names: frozenset[str]) -> Kind | None:
    match node:
        case tree.Literal(value=str()):
            return Kind.TEXT
        case tree.Literal(value=bool() | None):
            return None
        case tree.Literal():
            return Kind.NUMBER
        case tree.Name(name=name) if name in names:
            return OF_NAMES.get(name)
        case tree.Unary(sign="-" | "+"):
            return kind_of(node.operand, names)
        case tree.Arithmetic():
            kinds = {kind_of(node.left, names), kind_of(node.right, names)}
            return Kind.NUMBER if kinds == {Kind.NUMBER} else None
        case _:
            return None


def _hint(left: tree.Node, right: tree.Node) -> str:
    named = [f"{node.name} is {OF_NAMES[node.name]}" for node in (left, right) if isinstance(node, tree.Name)]
    return "; ".join(named) or "compare text with text, numbers with numbers"
