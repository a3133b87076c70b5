"""The tensors that are there when a trace begins, as far as Python reaches them."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import torch


def live_tensors() -> list[torch.Tensor]:
    """Plain ones: what is inside a subclass (a sharded or quantized tensor) is a tensor of its own."""
    found: list[torch.Tensor] = []
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor):
            with contextlib.suppress(Exception):  # half-made ones, and those that stand for others
                found += [tensor for tensor in _with_gradient(one) if _has_bytes(tensor)]
    return found


def _with_gradient(tensor: Any) -> Iterator[Any]:
    """A gradient that Python never looked at is known to its parameter alone."""
    yield tensor
    if tensor.is_leaf and tensor.grad is not None:
        yield tensor.grad


def _has_bytes(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() != 0
