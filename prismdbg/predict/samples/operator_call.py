"""Calls of operators that a program made, as sizes for a regressor; and the same calls on other sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

FACTORS = (2.0, 0.5, 1.5, 4.0, 0.75)  # in the order in which they are wanted
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
_ATTENTION = "_scaled_dot_product"
_LEAST_SIZE = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OperatorCall:
    """`described`: op, args and kwargs as JSON. count: in one step."""

    described: Mapping[str, Any]
    count: int = 0

    @property
    def operator(self) -> str:
        """`addmm`, the name of its file; an overload that writes elsewhere is another one."""
        _, packet, overload = str(self.described["op"]).split(".")
        return packet if overload in ("default", "Tensor") else f"{packet}.{overload}"

    @property
    def tensors(self) -> list[Sequence[int]]:
        return list(_tensors(self.described["args"])) + list(_tensors(list(self.described["kwargs"].values())))

    @property
    def columns(self) -> dict[str, float]:
        """`m n k batch` of a product of matrices, `l width heads` of an attention; else elements, the width of the
        largest tensor, and how many there are. Every value is at least 1."""
        shapes = self.tensors
        packet = str(self.described["op"]).split(".")[1]
        if packet in _PRODUCTS and len(shapes) >= 2:
            left, right = shapes[-2:]
            return {"m": left[-2], "n": right[-1], "k": left[-1], "batch": left[0] if len(left) == 3 else 1}
        if packet.startswith(_ATTENTION) and shapes and len(shapes[0]) >= 3:
            *heads, length, width = shapes[0]
            return {"l": length, "width": width, "heads": prod(heads)}
        largest = max(shapes, key=prod, default=(1,))
        items = sum(map(prod, shapes))
        return {"items": max(items, 1), "width": max([*largest[-1:], 1]), "tensors": max(len(shapes), 1)}

    @property
    def is_empty(self) -> bool:
        return not self.tensors or not all(map(prod, self.tensors))

    def scaled(self, size: int, factor: float) -> OperatorCall | None:
        """Everywhere another size in place of this one; None where that is no whole number."""
        other = size * factor
        if other != int(other) or other < 1:
            return None
        swapped = _swapped([self.described["args"], self.described["kwargs"]], size, int(other))
        return OperatorCall(described={"op": self.described["op"], "args": swapped[0], "kwargs": swapped[1]})


def grid(calls: Sequence[OperatorCall], factors: Sequence[float] = FACTORS) -> Iterator[OperatorCall]:
    """Each call with each of its sizes changed, all by the first factor before any by the second."""
    for factor in factors:
        for call in calls:
            sizes = sorted({size for shape in call.tensors for size in shape if size >= _LEAST_SIZE}, reverse=True)
            for size in sizes:
                if (other := call.scaled(size, factor)) is not None:
                    yield other


def _tensors(value: Any) -> Iterator[Sequence[int]]:
    if isinstance(value, list):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict) and "tensor" in value:
        yield value["tensor"]


def _swapped(value: Any, size: int, other: int) -> Any:
    """In sizes of tensors and in lists of whole numbers, which are sizes, too. Order and dimensions stay."""
    if isinstance(value, list):
        if value and all(type(each) is int for each in value):
            return [other if each == size else each for each in value]
        return [_swapped(each, size, other) for each in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        high = {"high": min(value["high"], other)} if "high" in value else {}
        return {**value, **high, "tensor": [other if each == size else each for each in value["tensor"]]}
    return {name: _swapped(each, size, other) for name, each in value.items()}
