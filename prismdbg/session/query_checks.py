"""What can be asked of the past: which expressions name something that was written, allocated, or can turn NaN. Held
against the value as the rank renders it. Pure."""

from __future__ import annotations

from typing import Any

from prismdbg.errors import UsageError, shortened
from prismdbg.expr import tree
from prismdbg.expr.parser import Expression
from prismdbg.expr.place import complaint

Json = dict[str, Any]

_TENSORS = ("input", "out")  # of the event: others at each collective
_NEVER_NAN = ("bool", "int", "str", "bytes", "bytearray", "NoneType")
_PATHS = tree.Name | tree.Attribute | tree.Index
_WRITE = "give a tensor of the program: who wrote model.head.weight, who wrote optimizer.state"
_BLOCK = "give one tensor: who allocated model.head.weight, who allocated out[0]"
_NUMBERS = "type `origin` alone, or with a floating-point value: origin model.head.weight, origin loss"


def require_written(expression: Expression, value: Json, of_event: frozenset[str]) -> None:
    """`UsageError` where no operator wrote it. of_event: the names of the event that the rank stands at, which are
    those of another one at each."""
    text = shortened(expression.text)
    for node in tree.walk(expression.root):
        if isinstance(node, tree.Name) and node.name in of_event:
            of_it = f"if the program has this name, too: local.{node.name}"
            if node.name in _TENSORS:
                of_it = f"for {node.name} use who allocated {node.name}[0] or origin {node.name}[0]"
            why = f"{node.name} exists only at this event"
            raise complaint(expression.text, node.column, why, hint=f"{_WRITE}; {of_it}")
    if not _holds_tensor(value):
        hint = f"{_WRITE}; to find where another value changes: break change {text}, then reverse-continue"
        raise UsageError(
            f"{text} is {_what(value)}, not a tensor, and not a list, mapping or module of tensors", hint=hint
        )


def require_block(expression: Expression, value: Json) -> None:
    """`UsageError` for what lies in no block of memory of its own."""
    text = shortened(expression.text)
    if not isinstance(expression.root, _PATHS):
        raise UsageError(
            f"{text} is a result of this expression, and no memory block of the program contains it", hint=_BLOCK
        )
    if value["kind"] != "tensor":
        hint = f"name one of them: who allocated {text}[0]" if value["kind"] == "sequence" else _BLOCK
        raise UsageError(f"{text} is {_what(value)}, not a tensor", hint=hint)
    if 0 in value["shape"]:
        raise UsageError(f"{text} has no elements and no memory", hint=_BLOCK)


def require_number(expression: Expression, value: Json) -> None:
    """`UsageError` for what is never NaN or infinite."""
    text = shortened(expression.text)
    dtype = str(value.get("dtype", "float"))
    if value.get("type") in _NEVER_NAN and value["kind"] == "scalar":
        raise UsageError(f"{text} is {_what(value)}, which is never NaN or infinite", hint=_NUMBERS)
    if value["kind"] == "tensor" and "float" not in dtype and "complex" not in dtype:
        raise UsageError(f"{text} is of {dtype}, which is never NaN or infinite", hint=_NUMBERS)


def _holds_tensor(value: Json) -> bool:
    """As far as its change is seen: what other objects hold is not looked at."""
    match value["kind"]:
        case "tensor":
            return True
        case "module":
            return bool(value["parameters"] or value["own"])
        case "sequence":
            return any(_holds_tensor(item) for item in value["items"])
        case "mapping":
            return any(_holds_tensor(item) for _, item in value["items"])
        case _:
            return False


def _what(value: Json) -> str:
    """`an int`, `a list of 3`."""
    kind = str(value.get("type", value["kind"])).rpartition(".")[2]
    if kind == "NoneType":
        return "None"
    many = f" of {value['length']}" if "length" in value else ""
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}{many}"
