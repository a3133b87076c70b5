"""Values that a rank rendered, as variables of the protocol; what a value holds is asked for when it is opened."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from prismdbg.dap.handles import Handles
from prismdbg.errors import PrismError
from prismdbg.expr.parser import parse
from prismdbg.render.value_text import number, rows, value_text

PIECE = 32  # items of a list that a rank renders at once
MAX_COUNT = 2000
MAX_KEY = 200
PLAIN = frozenset(["int", "float", "str", "bool", "NoneType", "bytes", "complex"])

Json = dict[str, Any]
Evaluate = Callable[[str], Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A value that can be opened. `text`: the expression that gives it, empty where there is none; `value`: as it was
    rendered, None where it was not asked for. `frame`: the number of the frame that the expression is of."""

    frame: int
    text: str = ""
    value: Json | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What a client wants of what a value holds: items from `start`, all where `count` is 0. kind: indexed, named or
    empty for both."""

    kind: str = ""
    start: int = 0
    count: int = 0


def is_tensor(told: Json) -> bool:
    """Of a frame's name, as a rank tells it; an older rank does not say it."""
    return told.get("tensor") is True


class Variables:
    """Makes variables and opens them. `memory` holds what `readMemory` may be asked for."""

    def __init__(self) -> None:
        self.held: Handles[Held] = Handles("variable")
        self.memory: Handles[Held] = Handles("memory reference")

    def clear(self) -> None:
        self.held.clear()
        self.memory.clear()

    def listed(self, told: Json, expression: str, frame: int) -> Json:
        """One of a frame's names, of which only a line is known."""
        held = Held(frame=frame, text=expression)
        found = {
            "name": told["name"], "value": told["text"], "type": told["type"], "evaluateName": expression,
            "variablesReference": self.held.add(held) if told["type"] not in PLAIN else 0,
        }  # fmt: skip
        return found | ({"memoryReference": str(self.memory.add(held))} if is_tensor(told) else {})

    def variable(self, name: str, value: Json, expression: str, frame: int) -> Json:
        return {"name": name, "value": value_text(value, brief=True), **self.reference(value, expression, frame)} | (
            {"evaluateName": expression} if expression else {}
        )

    def reference(self, value: Json, expression: str, frame: int) -> Json:
        """How a value can be opened, with its type."""
        held = Held(frame=frame, text=expression, value=value)
        found: Json = {"variablesReference": self.held.add(held) if _opens(value, expression) else 0}
        if "type" in value or value["kind"] == "tensor":
            found["type"] = value.get("type", "Tensor")
        if value["kind"] == "sequence":
            found["indexedVariables"] = value["length"]
        if value["kind"] == "tensor" and expression:
            found["memoryReference"] = str(self.memory.add(held))
        return found

    def inside(self, held: Held, piece: Piece, evaluate: Evaluate) -> list[Json]:
        """What a value holds. `evaluate`: of an expression in the value's own frame."""
        value = held.value
        if value is None or (value["kind"] == "object" and not value.get("fields") and held.text):
            value = evaluate(held.text)
        if value["kind"] == "sequence":
            return [] if piece.kind == "named" else self._items(held, value, piece, evaluate)
        if piece.kind == "indexed":
            return []
        return [
            self.variable(name, child, expression, held.frame) if child is not None else _text(name, text)
            for name, text, child, expression in _named(value, held.text)
        ]

    def _items(self, held: Held, value: Json, piece: Piece, evaluate: Evaluate) -> list[Json]:
        start, length = piece.start, int(value["length"])
        end = min(start + piece.count if piece.count else length, length, start + MAX_COUNT)
        items = list(value["items"][start:end])
        while start + len(items) < end and held.text:
            here = start + len(items)
            more = evaluate(f"({held.text})[{here}:{min(here + PIECE, end)}]").get("items", [])
            if not more:
                break
            items += more
        found = [
            self.variable(f"[{n}]", item, _valid(f"{_owner(held.text)}[{n}]", held.text), held.frame)
            for n, item in enumerate(items, start)
        ]
        left = length - start - len(items)
        return found + ([_text("...", f"{left} more")] if left > 0 and not piece.count else [])


def _opens(value: Json, expression: str) -> bool:
    match value["kind"]:
        case "scalar" | "more":
            return False
        case "object":
            return bool(value.get("fields") or expression)
    return True


def _named(value: Json, expression: str) -> Iterator[tuple[str, str, Json | None, str]]:
    """Name, text, the value where it was rendered, and the expression that gives it."""
    owner = _owner(expression)
    match value["kind"]:
        case "tensor":
            for name, text in _of_tensor(value):
                yield name, text, None, ""
        case "mapping":
            for key, item in value["items"]:
                yield f"[{key}]", "", item, _valid(f"{owner}[{key}]", expression if _is_literal(key) else "")
            if value["length"] > len(value["items"]):
                yield "...", f"{value['length'] - len(value['items'])} more", None, ""
        case "object":
            for name, item in value.get("fields", []):
                yield name, "", item, _valid(f"{owner}.{name}", expression)
        case "module":
            yield "parameters", f"{value['parameters']} elements, {value['trainable']} trainable", None, ""
            for name, text in [*value["own"], *value["children"]]:
                step = f"[{name}]" if name.isdigit() else f".{name}"
                child = {"kind": "object", "type": "", "text": text}
                yield name, text, child, _valid(f"{owner}{step}", expression)


def _of_tensor(value: Json) -> Iterator[tuple[str, str]]:
    yield "shape", str(tuple(value["shape"]))
    yield "dtype", value["dtype"]
    yield "device", value["device"]
    yield "requires_grad", str(value["requires_grad"])
    if sharded := value.get("sharded"):
        yield "sharded", f"{tuple(sharded['shape'])}, {', '.join(sharded['placements'])}"
    for name, measured in (value["stats"] or {}).items():
        yield name, number(measured)
    if value.get("values") is not None:
        yield f"values{value['slice']}", " ".join(rows(value["values"]))


def _owner(expression: str) -> str:
    """As something that an index or a name can follow."""
    is_simple = expression.replace(".", "").replace("_", "").isalnum() or expression.endswith("]")
    return expression if is_simple else f"({expression})"


def _is_literal(key: str) -> bool:
    """Whether the line that shows a key is the key, as it is written."""
    try:
        return len(key) <= MAX_KEY and isinstance(ast.literal_eval(key), str | int | float | None)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # of `{[]}`, or brackets in brackets
        return False


def _valid(expression: str, owner: str) -> str:
    """The expression, or nothing where its owner has none or it cannot be written."""
    if not owner:
        return ""
    try:
        parse(expression)
    except PrismError:
        return ""
    return expression


def _text(name: str, text: str) -> Json:
    return {"name": name, "value": text, "variablesReference": 0, "presentationHint": {"kind": "virtual"}}
