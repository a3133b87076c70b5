"""One call of a `c10d::` operator as a kernel receives it: its group, tensors and arguments by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from prismdbg.capsule.log.format import STREAM
from prismdbg.model import synthesis
from prismdbg.model.collective import TensorMeta
from prismdbg.model.dtypes import REDUCE_OPS
from prismdbg.model.ops import FROM_ROOT, OPS, TO_ROOT, Form, Movement, OpSpec
from prismdbg.rank.c10d.worlds import name_of


def flatten(value: Any) -> list[torch.Tensor]:
    """All tensors of a tensor, a list or a list of lists, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if value is None:
        return []
    return [tensor for item in value for tensor in flatten(item)]


def metas(tensors: Iterable[torch.Tensor]) -> tuple[TensorMeta, ...]:
    return tuple(TensorMeta(tuple(t.shape), str(t.dtype).removeprefix("torch."), str(t.device)) for t in tensors)


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    return sum(int(t.numel()) * int(t.element_size()) for t in tensors)


def is_capturing() -> bool:
    """Whether a CUDA graph is made of what the calling thread's stream is given."""
    return torch.cuda.is_initialized() and bool(torch.cuda.is_current_stream_capturing())


class Call:
    """Arguments equal to the schema's default are dropped by the dispatcher, so every optional one is looked up."""

    __slots__ = (
        "_args",
        "group",
        "group_name",
        "inputs",
        "is_async",
        "made",
        "outputs",
        "rank",
        "root",
        "size",
        "spec",
        "synthesized",
        "tag",
    )

    def __init__(self, spec: OpSpec, args: tuple[Any, ...]) -> None:
        self.spec = spec
        self._args = args
        self.group: Any = dist.ProcessGroup.unbox(args[spec.group])
        self.group_name = name_of(self.group)
        self.rank: int = self.group.rank()
        self.size: int = self.group.size()
        self.outputs = flatten(args[spec.outputs]) if spec.outputs is not None else []
        self.inputs = flatten(args[spec.inputs]) if spec.inputs is not None else []
        self.root = int(self._argument(spec.root, -1))
        self.tag = int(self._argument(spec.tag, 0))
        self.synthesized = False  # whether the answer was assumed
        self.made = synthesis.NOT_KNOWN  # and how
        self.is_async = bool(self._argument(spec.async_op, spec.async_op is not None))

    def _argument(self, position: int | None, default: Any) -> Any:
        return self._args[position] if position is not None and position < len(self._args) else default

    @property
    def reduce_op(self) -> str:
        boxed = self._argument(self.spec.reduce_op, None)
        return "" if boxed is None else REDUCE_OPS[int(boxed.op())]

    @property
    def timeout_ms(self) -> int:
        """As much of it as its field in the log holds, which is 24 days."""
        return min(int(self._argument(self.spec.timeout, -1)), 2**31 - 1)

    @property
    def device(self) -> str:
        tensors = self.outputs or self.inputs
        return str(tensors[0].device) if tensors else "cpu"

    @property
    def place(self) -> str:
        """As the log has it: the device, with the stream where that is not the default one."""
        name = self.device
        if name == "cpu" or not torch.accelerator.is_available():
            return name
        stream = torch.accelerator.current_stream(torch.device(name)).stream_id
        return f"{name}{STREAM}{stream}" if stream else name

    @property
    def is_captured(self) -> bool:
        """Whether a CUDA graph captures the call: whoever reads a tensor on the host now breaks the capture."""
        return self.device != "cpu" and is_capturing()

    @property
    def ends_at_wait(self) -> bool:
        """Whether the future of its work may be complete before the transfer is. So it is on devices. A barrier has no
        tensor that tells: only gloo's is known to end with its future."""
        has_tensors = bool(self.outputs or self.inputs)
        return self.device != "cpu" if has_tensors else self.group.name() != "gloo"

    @property
    def sent(self) -> list[torch.Tensor]:
        """The tensors whose values leave this rank."""
        if self.spec.movement in FROM_ROOT and self.root != self.rank:
            return []
        return self.inputs

    @property
    def received(self) -> list[torch.Tensor]:
        """The tensors that the collective fills on this rank."""
        if self.spec.movement is Movement.BROADCAST and self.root == self.rank:
            return []
        if self.spec.movement in TO_ROOT and self.root != self.rank:
            return []
        return self.outputs

    @property
    def parts_sent(self) -> list[torch.Tensor]:
        """Of an all-to-all: what each member gets of this rank, in group order."""
        return self._parts(self.inputs, self.spec.input_splits)

    @property
    def parts_received(self) -> list[torch.Tensor]:
        """Of an all-to-all: where what each member sends is put, in group order."""
        return self._parts(self.outputs, self.spec.output_splits)

    def _parts(self, tensors: list[torch.Tensor], position: int | None) -> list[torch.Tensor]:
        if self.spec.form is Form.LISTED:
            return tensors
        (whole,) = tensors
        rows = [int(count) for count in self._argument(position, ())] or [whole.shape[0] // self.size] * self.size
        return list(whole.split(rows))

    @property
    def held(self) -> list[torch.Tensor]:
        """What gloo's work holds for as long as it lives: of a reduce-scatter only what it fills, for it copies."""
        return self.outputs if self.spec.movement is Movement.REDUCE_SCATTER else [*self.outputs, *self.inputs]

    def result(self, work: Any) -> Any:
        """What the operator returns when `work` stands for the transfer."""
        if self.spec.returns == "nothing":
            return None
        if self.spec.returns == "work":
            return work
        assert self.spec.outputs is not None
        return self._args[self.spec.outputs], work

    def work_of(self, result: Any) -> Any:
        """The backend's own Work inside what the operator returned."""
        return dist.Work.unbox(result[1] if self.spec.returns == "pair" else result)


def is_meta(spec: OpSpec, args: tuple[Any, ...]) -> bool:
    """A shape-only run (FakeTensorMode, meta device) that reaches the kernels and must pass through."""
    position = spec.outputs if spec.outputs is not None else spec.inputs
    tensors = flatten(args[position if position is not None else 0])
    return bool(tensors) and tensors[0].device.type == "meta"


Redispatch = Callable[[], Any]


def identity_key(spec: OpSpec, call: Call) -> tuple[str, str, int, int]:
    """What sequence numbers are counted by: the group, for point-to-point also op, peer and tag."""
    if spec.is_p2p:
        return call.group_name, spec.name, call.root, call.tag
    return call.group_name, "", -1, 0


__all__ = ["OPS", "Call", "Redispatch", "flatten", "identity_key", "is_meta", "metas"]
