"""Gives an expression its value among names and functions that the caller brings. Calls nothing else.

No code of the program runs: what may be done with its objects is said in `prismdbg.expr.objects`. Bounded: texts and
lists are not multiplied, whole numbers stay below `MAX_BITS` bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from prismdbg.errors import PrismError, UsageError, quoted
from prismdbg.expr import objects, tree
from prismdbg.expr.parser import Expression
from prismdbg.expr.place import complaint

MAX_BITS = 4096

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}

_COMPARISON: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "is": operator.is_,
    "is not": operator.is_not,
}


def _same(value: Any) -> Any:
    return value


def _admit_all(_left: Any, _right: Any) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What an expression can see.

    lookup: the value of a name; raises `KeyError` where there is none. functions: bodies for the table.
    operand: called on every value that an operator, an index or a function takes (a sharded tensor becomes this
    rank's part, say). admit: called with both operands of an operator; raises `UsageError` where the result would
    be out of bounds. kinds: types, beside the builtin ones, whose operators are not the program's. attribute, item: of
    an object; they run none of the program's code.
    """

    lookup: Callable[[str], Any]
    functions: Mapping[str, Callable[..., Any]]
    operand: Callable[[Any], Any] = _same
    admit: Callable[[Any, Any], None] = _admit_all
    kinds: frozenset[type] = frozenset()
    attribute: Callable[[Any, str], Any] = objects.static_attribute
    item: Callable[[Any, Any, frozenset[type]], Any] = objects.item

    def truth(self, value: Any) -> bool:
        """Whether a condition with this value holds."""
        return objects.truth(self.operand(value), self.kinds)


def evaluate(expression: Expression, environment: Environment) -> Any:
    """The value, or `UsageError` with a caret under the part that has none."""
    return _Evaluation(expression.text, environment).value(expression.root)


class _Evaluation:
    def __init__(self, text: str, environment: Environment) -> None:
        self._text = text
        self._environment = environment

    def value(self, node: tree.Node) -> Any:
        match node:
            case tree.Literal():
                return node.value
            case tree.Name():
                return self._name(node)
            case tree.Logic():
                return self._logic(node)
            case tree.Comparison():
                return self._comparison(node)
            case _:
                values = [self.value(child) for child in tree.children(node)]
                return self._guarded(node, lambda: self._combine(node, values))

    def _guarded(self, node: tree.Node, action: Callable[[], Any]) -> Any:
        """Whatever goes wrong in Python becomes an error that points at the place."""
        try:
            return action()
        except PrismError as error:
            if "\n" in str(error):
                raise
            raise complaint(self._text, node.column, str(error), hint=error.hint) from None
        except Exception as error:
            raise complaint(self._text, node.column, _in_words(error)) from None

    def _name(self, node: tree.Name) -> Any:
        try:
            return self._environment.lookup(node.name)
        except KeyError as error:
            hint = str(error.args[1]) if len(error.args) > 1 else ""
            raise complaint(self._text, node.column, f"unknown name {quoted(node.name)}", hint=hint) from None

    def _logic(self, node: tree.Logic) -> Any:
        result: Any = None
        for operand in node.operands:
            result = self.value(operand)
            if self._truth(operand, result) is (node.word == "or"):
                break
        return result

    def _comparison(self, node: tree.Comparison) -> Any:
        left, result = self.value(node.first), True
        for position, (sign, operand) in enumerate(node.rest):
            if position and not self._truth(node, result):
                break
            right = self.value(operand)
            result = self._guarded(operand, lambda a=left, b=right, s=sign: self._compare(s, a, b))  # type: ignore[misc]
            left = right
        return result

    def _truth(self, node: tree.Node, value: Any) -> bool:
        return bool(self._guarded(node, lambda: self._environment.truth(value)))

    def _compare(self, sign: str, left: Any, right: Any) -> Any:
        if sign in ("is", "is not"):
            return _COMPARISON[sign](left, right)
        if sign in ("in", "not in"):
            value, container = self._environment.operand(left), self._environment.operand(right)
            if objects.exactly(container, self._environment.kinds):
                self._environment.admit(value, container)
            found = objects.contains(value, container, self._environment.kinds)
            return found is (sign == "in")
        left, right = self._operands(left, right, objects.compared)
        return _COMPARISON[sign](left, right)

    def _operand(self, value: Any) -> Any:
        return objects.operand(self._environment.operand(value), self._environment.kinds)

    def _operands(self, left: Any, right: Any, known: Callable[[Any, frozenset[type]], Any]) -> tuple[Any, Any]:
        kinds = self._environment.kinds
        left, right = (known(self._environment.operand(value), kinds) for value in (left, right))
        self._environment.admit(left, right)
        return left, right

    def _combine(self, node: tree.Node, values: list[Any]) -> Any:
        match node:
            case tree.Attribute():
                return self._attribute(values[0], node.name)
            case tree.Index():
                return self._item(values[0], values[1:])
            case tree.Slice():
                given = iter(values)
                return slice(*(None if p is None else next(given) for p in (node.start, node.stop, node.step)))
            case tree.Call():
                operands = [self._operand(value) for value in values]
                return self._environment.functions[node.function](*operands)
            case tree.Sequence():
                return tuple(values)
            case tree.Unary():
                if node.sign == "not":
                    return not self._environment.truth(values[0])
                operand = self._operand(values[0])
                _require_number(node.sign, operand)
                return -operand if node.sign == "-" else +operand
            case tree.Arithmetic():
                return _bounded(node.sign, *self._operands(values[0], values[1], partial(_number, node.sign)))
        raise AssertionError(node)  # pragma: no cover

    def _item(self, owner: Any, keys: list[Any]) -> Any:
        owner = self._environment.operand(owner)
        keys = [self._key(key) for key in keys]
        return self._environment.item(owner, keys[0] if len(keys) == 1 else tuple(keys), self._environment.kinds)

    def _key(self, key: Any) -> Any:
        """An object of the program is one that a mapping may hold: it is looked for by identity. A container of the
        program's own, and whatever bounds a slice, would be asked for its `__index__`."""
        if type(key) is slice:
            return slice(*(None if part is None else self._plain(part) for part in (key.start, key.stop, key.step)))
        key = objects.builtin(self._environment.operand(key))
        return self._plain(key) if objects.is_a(key, objects.CONTAINERS) else key

    def _plain(self, value: Any) -> Any:
        return objects.compared(self._environment.operand(value), self._environment.kinds)

    def _attribute(self, owner: Any, name: str) -> Any:
        try:
            return self._environment.attribute(owner, name)
        except UsageError as error:
            if objects.is_a(owner, dict) and objects.contains(name, owner, frozenset()):
                raise UsageError(f"{name!r} is a key, not an attribute", hint=f'write ["{name}"]') from error
            raise


def _bounded(sign: str, left: Any, right: Any) -> Any:
    """Python's arithmetic, without what grows without bound."""
    if sign == "**" and objects.is_a(right, int) and not objects.is_a(left, float):
        bits = left.bit_length() if objects.is_a(left, int) else 1
        _check_size(sign, bits * abs(right))
    for number in (left, right):
        if objects.is_a(number, int):
            _check_size(sign, number.bit_length())
    return _ARITHMETIC[sign](left, right)


def _require_number(sign: str, value: Any) -> None:
    if objects.is_a(value, objects.CONTAINERS):
        raise UsageError(
            f"{sign!r} works on numbers and tensors, not on a {objects.kind_name(value)}", hint="index it first: x[0]"
        )


def _number(sign: str, value: Any, kinds: frozenset[type]) -> Any:
    value = objects.operand(value, kinds)
    _require_number(sign, value)
    return value


def _check_size(sign: str, bits: int) -> None:
    if bits > MAX_BITS:
        raise UsageError(f"the result of {sign!r} would be too large", hint="use smaller numbers, or floats")


def _in_words(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
