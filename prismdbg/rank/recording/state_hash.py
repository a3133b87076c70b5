"""One number for a rank's trained state: the fingerprint of the parameters that the first optimizer holds."""

from __future__ import annotations

from typing import Any

import torch

from prismdbg.rank.c10d import fingerprint


def parameters_of(optimizer: Any) -> list[torch.Tensor]:
    """The optimizer's parameters in its order, sharded ones as this rank's part; none of what has no groups of them."""
    tensors = [parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"]]
    return [t.to_local() if hasattr(t, "to_local") else t for t in tensors]


def of(optimizer: Any) -> str | None:
    """64 bits as 16 hexadecimal digits; equal for bitwise equal parameters in the same order. None where the optimizer
    holds none: DeepSpeed's ZeRO-3 gives them to it for the time of its step alone."""
    with torch.no_grad():
        tensors = [tensor.detach() for tensor in parameters_of(optimizer)]
        return f"{fingerprint.of(tensors):016x}" if tensors else None
