"""Are two saved results the same, bit by bit? Tensors by type, shape and bytes, so that NaN equals the same NaN."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def load(path: Path) -> Any:
    import torch

    return torch.load(path, weights_only=True)


def differences(left: Any, right: Any, at: str = "") -> Iterator[str]:
    """A line for every place where they differ."""
    if type(left) is not type(right):
        yield f"{at}: {type(left).__name__}, {type(right).__name__}"
    elif isinstance(left, dict):
        if left.keys() != right.keys():
            yield f"{at}: {sorted(left)}, {sorted(right)}"
        for key in left.keys() & right.keys():
            yield from differences(left[key], right[key], f"{at}/{key}")
    elif isinstance(left, (list, tuple)):
        if len(left) != len(right):
            yield f"{at}: {len(left)}, {len(right)} items"
        for index, pair in enumerate(zip(left, right, strict=False)):
            yield from differences(*pair, f"{at}/{index}")
    elif hasattr(left, "untyped_storage"):
        if _bytes(left) != _bytes(right):
            yield f"{at}: {left}, {right}"
    elif left != right:
        yield f"{at}: {left}, {right}"


def _bytes(tensor: Any) -> tuple[str, tuple[int, ...], bytes]:
    import torch

    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return str(tensor.dtype), tuple(tensor.shape), bytes(flat.tolist())
