"""A tensor as a JSON value of bounded size: what it is, statistics, a histogram, and its first values."""

from __future__ import annotations

import math
from typing import Any

import torch

from prismdbg.expr.objects import definer, kind_name
from prismdbg.rank.program.tensor_parts import (
    chunks,
    countable,
    in_numbers,
    is_sharded,
    is_torchs,
    local,
    requires_grad,
    sizes_of,
)

BINS = 16
MAX_VALUES = 64
_ROW = 8


def summary(tensor: torch.Tensor) -> dict[str, Any]:
    """For a sharded tensor everything but `sharded` is of this rank's part."""
    part = local(tensor)
    data: dict[str, Any] = {
        "kind": "tensor",
        "shape": list(part.shape),
        "dtype": dtype_name(part),
        "device": str(part.device),
        "requires_grad": requires_grad(tensor),
        "stats": None,
        "histogram": None,
        "values": None,
        "slice": "",
    }
    if is_sharded(tensor):
        data["sharded"] = {"shape": sizes_of(tensor), "placements": _placements(tensor)}
    if countable(part):
        data |= measured(part)
    return data


def _placements(tensor: torch.Tensor) -> list[str]:
    """As torch's own classes know them."""
    is_known = is_torchs(type(tensor)) and definer(type(tensor), "placements") is not None
    placements = getattr(tensor, "placements", ()) if is_known else ()
    return [str(each) if is_torchs(type(each)) else kind_name(each) for each in placements]


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def measured(part: torch.Tensor) -> dict[str, Any]:
    """`stats` over the finite elements, with counts of the others; `histogram`; `values` of the corner `slice`."""
    stats = statistics(part)
    values, text = corner(part)
    return {"stats": stats, "histogram": histogram(part, stats), "values": values, "slice": text}


def statistics(part: torch.Tensor) -> dict[str, Any]:
    """Minimum, maximum, mean and (population) deviation of the finite elements; None where there is none."""
    nans = infinities = count = 0
    low, high, total, squares = math.inf, -math.inf, 0.0, 0.0
    for chunk in chunks(part):
        numbers = in_numbers(chunk)
        finite = numbers[torch.isfinite(numbers)]
        here_nan = int(torch.isnan(numbers).sum())
        nans, infinities = nans + here_nan, infinities + numbers.numel() - finite.numel() - here_nan
        if finite.numel():
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
            total, squares, count = merged(total, squares, count, finite)
    if not count:
        return {"nan": nans, "inf": infinities, "min": None, "max": None, "mean": None, "std": None}
    mean, std = total / count, math.sqrt(squares / count)
    return {"nan": nans, "inf": infinities, "min": low, "max": high, "mean": plain(mean), "std": plain(std)}


def merged(total: float, squares: float, count: int, chunk: torch.Tensor) -> tuple[float, float, int]:
    """Sum, sum of squared deviations and count with a chunk added (Chan's rule)."""
    size, here = chunk.numel(), float(chunk.sum())
    deviations = float((chunk - here / size).square_().sum())
    if count:
        deviations += squares + (total / count - here / size) ** 2 * count * size / (count + size)
    return total + here, deviations, count + size


def histogram(part: torch.Tensor, stats: dict[str, Any]) -> dict[str, Any] | None:
    """Finite elements in `BINS` equally wide bins from the minimum to the maximum."""
    low, high = stats["min"], stats["max"]
    if low is None or not math.isfinite(high - low):
        return None
    counts = torch.zeros(BINS, dtype=torch.int64, device=part.device)
    scale = BINS / (high - low) if high > low else 0.0
    for chunk in chunks(part):
        numbers = in_numbers(chunk)
        finite = numbers[torch.isfinite(numbers)]
        bins = ((finite - low) * scale).to(torch.int64).clamp_(0, BINS - 1)
        counts += torch.bincount(bins, minlength=BINS)
    return {"low": low, "high": high, "counts": counts.tolist()}


def corner(part: torch.Tensor) -> tuple[Any, str]:
    """Nested lists of at most `MAX_VALUES` first elements, and which part of the tensor that is."""
    wanted: list[int] = []
    left = MAX_VALUES
    for position, size in enumerate(reversed(part.shape)):
        wanted.insert(0, min(size, _ROW if position == 0 and part.dim() > 1 else left))
        left //= max(wanted[0], 1)
    piece = part.detach()
    for dimension, size in enumerate(wanted):
        piece = piece.narrow(dimension, 0, size)
    whole = list(part.shape) == wanted
    text = "" if whole else "[" + ", ".join(f":{size}" for size in wanted) + "]"
    return plain(piece.to("cpu").tolist()), text


def plain(value: Any) -> Any:
    """JSON knows no NaN, no infinity and no complex number: those become texts."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, complex):
        return str(value)
    return value
