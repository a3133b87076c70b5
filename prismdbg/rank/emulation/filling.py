"""Fills received tensors by assumption: as if peers sent what this rank sends, zeros, or noise. All values are defined.

In place and without temporary copies of the program's size wherever torch allows it. Views are detached before they are
written, as the tensors are: of what was made in inference mode torch lets only that be written outside it.
"""

from __future__ import annotations

import hashlib

import torch

from prismdbg.model.ops import Form, Movement
from prismdbg.rank.c10d.call import Call

DEFAULT_DEVIATION = 0.02


def echo(call: Call, outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
    """Every peer does what this rank does; of a broadcast the root sends what this rank holds already."""
    match call.spec.movement:
        case Movement.ALL_REDUCE | Movement.REDUCE:
            for tensor in outputs:
                combine(call, tensor)
        case Movement.ALL_GATHER | Movement.GATHER:
            _gather(call, outputs, inputs)
        case Movement.REDUCE_SCATTER:
            _reduce_scatter(call, outputs, inputs)
        case Movement.ALL_TO_ALL:
            _mirror(outputs, inputs)
        case Movement.SCATTER | Movement.RECEIVE:
            zeros(outputs)
        case Movement.BROADCAST | Movement.SEND | Movement.BARRIER:
            pass


def is_tiny(tensor: torch.Tensor) -> bool:
    """float8 knows no arithmetic."""
    return bool(tensor.is_floating_point() and tensor.element_size() == 1)


def combine(call: Call, tensor: torch.Tensor, times: int = 0) -> None:
    """The reduction of as many equal tensors, 0 for the group's size."""
    combine_equal(call.reduce_op, times or call.size, tensor)


def combine_equal(reduce_op: str, times: int, tensor: torch.Tensor) -> None:
    """MIN, MAX, AVG, BAND, BOR change nothing; nor do sums and products of `bool`, which has no arithmetic."""
    if reduce_op == "BXOR":
        if times % 2 == 0:
            tensor.zero_()
    elif tensor.dtype == torch.bool:
        return
    elif is_tiny(tensor):
        wide = tensor.float()
        combine_equal(reduce_op, times, wide)
        tensor.copy_(wide.to(tensor.dtype))
    elif reduce_op in ("SUM", "PREMUL_SUM"):
        tensor.mul_(times)
    elif reduce_op == "PRODUCT":
        tensor.pow_(times)


def _gather(call: Call, outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
    """Lists hold a tensor for each rank (coalesced: for each rank its inputs); the into-tensor forms one for all."""
    into = call.spec.form is Form.FLAT
    for index, target in enumerate(outputs):
        tile(target, inputs[index if into else index % len(inputs)])


def _reduce_scatter(call: Call, outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
    for index, target in enumerate(outputs):
        if call.spec.form is Form.LISTED:
            source = inputs[index * call.size + call.rank]
        else:
            source = inputs[index].reshape(call.size, -1)[call.rank]
        target.copy_(source.reshape(target.shape))
        combine(call, target)


def _mirror(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
    """Each peer sends back as much as it gets, where the sizes allow it."""
    for target, source in zip(outputs, inputs, strict=False):
        tile(target, source)


def tile(target: torch.Tensor, source: torch.Tensor) -> None:
    """Repeats the source until the target is full."""
    if not target.numel():
        return
    if not source.numel():
        target.zero_()
        return
    whole, rest = divmod(target.numel(), source.numel())
    if rest == 0 and target.is_contiguous():
        target.view(whole, -1).detach().copy_(source.reshape(1, -1).expand(whole, -1))
        return
    flat = source.reshape(-1)
    target.copy_(flat.repeat(whole + bool(rest))[: target.numel()].view(target.shape))


def balanced(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
    """Counts of an all-to-all: the total that this rank sends comes back in equal shares."""
    total = sum(int(tensor.sum()) for tensor in inputs)
    places = sum(tensor.numel() for tensor in outputs)
    share, rest = divmod(total, max(places, 1))
    for tensor in outputs:
        count = tensor.numel()
        tensor.fill_(share)
        tensor.view(-1)[: min(rest, count)].detach().add_(1)
        rest -= min(rest, count)


def zeros(outputs: list[torch.Tensor]) -> None:
    for tensor in outputs:
        tensor.zero_()


def noise(outputs: list[torch.Tensor], seed: int, mean: float = 0.0, deviation: float = DEFAULT_DEVIATION) -> None:
    """Normal values, the same for the same seed; what is not floating point is zero."""
    generators: dict[torch.device, torch.Generator] = {}
    for tensor in outputs:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            tensor.zero_()
            continue
        generator = generators.setdefault(tensor.device, torch.Generator(tensor.device).manual_seed(seed))
        if is_tiny(tensor):
            values = torch.empty(tensor.shape, device=tensor.device).normal_(mean, deviation, generator=generator)
            tensor.copy_(values.to(tensor.dtype))
        else:
            target = torch.view_as_real(tensor).detach() if tensor.is_complex() else tensor
            target.normal_(mean, deviation, generator=generator)


def seed_of(*parts: object) -> int:
    """63 bits that depend on every part, the same in every process."""
    text = "|".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def pour(tensor: torch.Tensor, data: bytes | memoryview) -> None:
    """As many bytes as there are and fit; what is left of the tensor is zero."""
    size = int(tensor.numel()) * int(tensor.element_size())
    whole = torch.zeros(size, dtype=torch.uint8, device="cpu")
    if len(data) and size:
        part = torch.frombuffer(bytearray(data[:size]), dtype=torch.uint8)
        whole[: part.numel()] = part
    tensor.copy_(whole.view(tensor.dtype).view(tensor.shape))
