"""The bodies of the expression language's functions: over numbers, tensors, and lists of tensors as one.

Whole tensors become one Python number. A sharded tensor counts as this rank's part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from prismdbg.errors import UsageError
from prismdbg.expr.objects import CONTAINERS, builtin, elements, exactly, is_a, kind_name, size
from prismdbg.rank.debug.tensor_summary import dtype_name
from prismdbg.rank.program.tensor_parts import chunks, countable, in_numbers, is_tensor, local

_LISTS = (list, tuple, dict, set, frozenset)


def parts(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """The tensors in a value, in order; numbers and lists of numbers as tensors."""
    value = builtin(local(value))
    if is_tensor(value):
        if not countable(value):
            raise UsageError(
                f"the elements of this tensor ({value.device}, {value.layout}) cannot be read",
                hint="use a copy as a dense tensor in the program, or print its shape",
            )
        yield value
    elif exactly(value, (bool, int, float, complex)):
        dtype = torch.complex128 if isinstance(value, complex) else torch.float64
        yield torch.tensor(value, dtype=dtype, device="cpu")
    elif is_a(value, _LISTS) and depth < 4:
        for item in dict.values(value) if is_a(value, dict) else elements(value):
            yield from parts(item, depth + 1)
    else:
        raise UsageError(f"a {kind_name(value)} contains no numbers", hint="name a tensor, a number or a list of them")


def pieces(value: Any) -> Iterator[torch.Tensor]:
    for part in parts(value):
        for chunk in chunks(part):
            yield in_numbers(chunk)


def _in_full(part: torch.Tensor) -> Iterator[torch.Tensor]:
    """In double precision; complex elements stay complex."""
    for chunk in chunks(part):
        yield chunk.to(torch.complex128 if chunk.is_complex() else torch.float64)


def holds_nan(value: Any) -> bool:
    return any(bool(torch.isnan(piece).any()) for piece in pieces(value))


def holds_inf(value: Any) -> bool:
    return any(bool(torch.isinf(piece).any()) for piece in pieces(value))


def is_finite(value: Any) -> bool:
    return all(bool(torch.isfinite(piece).all()) for piece in pieces(value))


def any_true(value: Any) -> bool:
    return any(bool((piece != 0).any()) for piece in pieces(value))


def all_true(value: Any) -> bool:
    return all(bool((piece != 0).all()) for piece in pieces(value))


def total(value: Any) -> Any:
    """Of whole numbers exactly; complex if an element is."""
    found = list(parts(value))
    if any(part.is_floating_point() or part.is_complex() for part in found):
        return sum(piece.sum().item() for part in found for piece in _in_full(part))
    return sum(int(chunk.sum(dtype=torch.int64)) for part in found for chunk in chunks(part))


def mean(value: Any) -> Any:
    count = numel(value)
    return sum(piece.sum().item() for part in parts(value) for piece in _in_full(part)) / count if count else math.nan


def std(value: Any) -> float:
    middle, count = mean(value), numel(value)
    squares = sum(float((piece - middle).abs().square().sum()) for part in parts(value) for piece in _in_full(part))
    return math.sqrt(squares / count) if count else math.nan


def norm(value: Any) -> float:
    return math.sqrt(sum(float(piece.square().sum()) for piece in pieces(value)))


def numel(value: Any) -> int:
    return sum(part.numel() for part in parts(value))


def magnitude(value: Any) -> Any:
    value = local(value)
    if is_a(value, CONTAINERS):
        raise UsageError(
            f"abs works on numbers and tensors, not on a {kind_name(value)}", hint="index it first: abs(x[0])"
        )
    return abs(value)


def _extreme(choose: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def extreme(*values: Any) -> Any:
        found = [part for value in values for part in parts(value) if part.numel()]
        if not found:
            raise UsageError(f"{choose.__name__} needs at least one value", hint="check whether len(...) is 0 first")
        if holds_nan(found):
            return math.nan
        return choose([choose(_ends(part)) for part in found])

    return extreme


def _ends(part: torch.Tensor) -> list[Any]:
    """Minimum and maximum; whole numbers exactly."""
    ends: list[Any] = []
    for chunk in chunks(part):
        numbers = chunk if chunk.dtype in (torch.int32, torch.int64) else in_numbers(chunk)
        ends += [numbers.min().item(), numbers.max().item()]
    return ends


def shape(value: Any) -> tuple[int, ...]:
    return tuple(_one_tensor(value).shape)


def dtype(value: Any) -> str:
    return dtype_name(_one_tensor(value))


def _one_tensor(value: Any) -> torch.Tensor:
    if is_a(value, (list, tuple)) and size(value) == 1:
        value = local(next(iter(elements(value))))
    if not issubclass(type(value), torch.Tensor):
        raise UsageError(f"a {kind_name(value)} is not a tensor", hint="name one tensor of the list: out[0]")
    return value


def length(value: Any) -> int:
    return size(value) if is_a(value, CONTAINERS) else len(value)


def first_nan(value: Any) -> tuple[int, ...] | None:
    """The index of the first NaN in logical order; in a list of tensors its place in the list comes first."""
    value = local(value)
    if is_tensor(value):
        return _first_nan_of(value)
    for number, item in enumerate(parts(value)):
        if (found := _first_nan_of(item)) is not None:
            return (number, *found)
    return None


def _first_nan_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    offset = 0
    for chunk in chunks(tensor):
        where = torch.isnan(in_numbers(chunk))
        if bool(where.any()):
            flat = offset + int(where.to(torch.uint8).argmax())
            return tuple(int(i) for i in _unraveled(flat, tensor.shape))
        offset += chunk.numel()
    return None


def _unraveled(flat: int, sizes: torch.Size) -> list[int]:
    index: list[int] = []
    for extent in reversed(sizes):
        flat, place = divmod(flat, extent)
        index.insert(0, place)
    return index


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "nan": holds_nan,
    "inf": holds_inf,
    "finite": is_finite,
    "abs": magnitude,
    "max": _extreme(max),
    "min": _extreme(min),
    "mean": mean,
    "std": std,
    "sum": total,
    "norm": norm,
    "shape": shape,
    "dtype": dtype,
    "len": length,
    "numel": numel,
    "any": any_true,
    "all": all_true,
    "first_nan": first_nan,
}
