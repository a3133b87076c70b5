"""The tensors that are looked at: this rank's part of a sharded one, and pieces of bounded size to compute on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from prismdbg.errors import UsageError

CHUNK = 1 << 22


def is_tensor(value: Any) -> bool:
    return issubclass(type(value), torch.Tensor)


def is_readable(value: torch.Tensor) -> bool:
    """Whether it can be read without the program's code, which a tensor of its own may want to see every function of
    torch that is applied to it."""
    return not any(
        name in namespace and not is_torchs(str(namespace.get("__module__", "")))
        for namespace in map(vars, type(value).__mro__)
        for name in ("__torch_function__", "__torch_dispatch__", "to_local")
    )


def is_torchs(module: str) -> bool:
    return module == "torch" or module.startswith("torch.")


def local(value: Any) -> Any:
    """A sharded tensor's part on this rank, a tensor of a class of the program's own as a plain one; anything else as
    it is. Issues no collective. `UsageError` where only the program's code could read it."""
    kind = type(value)
    if not issubclass(kind, torch.Tensor) or kind is torch.Tensor or kind is torch.nn.Parameter:
        return value
    if not is_readable(value):
        name = f"{kind.__module__}.{kind.__qualname__}"
        raise UsageError(f"a {name} is read by the program's own code: it is not run here", hint="print a part of it")
    if hasattr(value, "to_local"):
        return value.to_local()
    if is_torchs(kind.__module__):
        return value
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.as_subclass(value, torch.Tensor)


def countable(tensor: torch.Tensor) -> bool:
    """Whether its elements can be read: not on the meta device, strided, and its storage not given back (FSDP)."""
    if tensor.device.type == "meta" or tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    return tensor.numel() == 0 or bool(tensor.untyped_storage().nbytes())


def chunks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Flat pieces in logical order, each of about `CHUNK` elements, none a copy of more than that."""
    tensor = tensor.detach()
    if tensor.numel() <= CHUNK or tensor.is_contiguous():
        yield from tensor.reshape(-1).split(CHUNK)
        return
    rows = tensor.shape[0]
    step = max(1, CHUNK * rows // tensor.numel())
    for start in range(0, rows, step):
        part = tensor.narrow(0, start, min(step, rows - start))
        yield from chunks(part[0] if step == 1 else part)


def in_numbers(chunk: torch.Tensor) -> torch.Tensor:
    """As double precision; of complex elements the magnitude."""
    if chunk.is_complex():
        return chunk.to(torch.complex128).abs()
    return chunk.to(torch.float64)
