"""The tensors that are looked at: this rank's part of a sharded one, and pieces of bounded size to compute on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from prismdbg.errors import UsageError
from prismdbg.expr import objects

CHUNK = 1 << 22


def is_tensor(value: Any) -> bool:
    return issubclass(type(value), torch.Tensor)


def is_readable(value: torch.Tensor) -> bool:
    """Whether it can be read without the program's code, which a tensor of its own may want to see every function of
    torch that is applied to it."""
    return not any(
        objects.own(kind, name) is not None and not is_torchs(kind)
        for kind in objects.bases(type(value))
        for name in ("__torch_function__", "__torch_dispatch__", "to_local")
    )


def is_torchs(kind: type) -> bool:
    """Whether torch defines this class: what a class says of its module may be said by one of the program's, too."""
    module = objects.builtin(objects.own(kind, "__module__"))
    if type(module) is not str or not (module == "torch" or module.startswith("torch.")):
        return False
    defined = objects.vars_of(sys.modules.get(module)) or {}
    return objects.of_name(defined, objects.short_name(kind)) is kind


def local(value: Any) -> Any:
    """A sharded tensor's part on this rank, a tensor of a class of the program's own as a plain one; anything else as
    it is. Issues no collective. `UsageError` where only the program's code could read it."""
    kind = type(value)
    if not issubclass(kind, torch.Tensor) or kind is torch.Tensor or kind is torch.nn.Parameter:
        return value
    if not is_readable(value):
        raise UsageError(
            f"a {objects.kind_name(value)} is read by the program's own code: it is not run here",
            hint="print a part of it",
        )
    by = objects.definer(kind, "to_local")
    if by is not None:
        return objects.own(by, "to_local")(value)
    if is_torchs(kind):
        return value
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.as_subclass(value, torch.Tensor)


def is_sharded(value: torch.Tensor) -> bool:
    """Whether this rank has a part of it."""
    return objects.definer(type(value), "to_local") is not None


def sizes_of(value: torch.Tensor) -> list[int]:
    """Of the whole tensor, without asking a class of the program's own."""
    with torch._C.DisableTorchFunctionSubclass():
        return list(torch._C.TensorBase.shape.__get__(value))


def requires_grad(value: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunctionSubclass():
        return bool(torch._C.TensorBase.requires_grad.__get__(value))


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
