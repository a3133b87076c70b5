"""The values that an expression is about, as expressions: `max(abs(model.head.weight[0])) < 3` is about
`model.head.weight[0]`."""

from __future__ import annotations

from collections.abc import Iterator

from prismdbg.expr import tree
from prismdbg.expr.parser import Expression

MAX_OPERANDS = 8


def operands(expression: Expression) -> tuple[str, ...]:
    """Names with what is taken out of them, in order, each once."""
    return tuple(dict.fromkeys(_chains(expression.root)))[:MAX_OPERANDS]


def _chains(node: tree.Node) -> Iterator[str]:
    text = _chain(node)
    if text:
        yield text
        return
    for child in tree.children(node):
        yield from _chains(child)


def _chain(node: tree.Node) -> str:
    """A name, its attributes and items by plain keys; empty for anything else."""
    match node:
        case tree.Name():
            return node.name
        case tree.Attribute():
            owner = _chain(node.owner)
            return f"{owner}.{node.name}" if owner else ""
        case tree.Index():
            owner, keys = _chain(node.owner), [_key(key) for key in node.keys]
            return f"{owner}[{', '.join(keys)}]" if owner and all(keys) else ""
    return ""


def _key(node: tree.Node) -> str:
    if isinstance(node, tree.Literal) and isinstance(node.value, int | str):
        return repr(node.value)
    if isinstance(node, tree.Unary) and node.sign == "-":
        operand = _key(node.operand)
        return f"-{operand}" if operand else ""
    return ""
