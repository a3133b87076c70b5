"""Virtual peers stand in for the ranks that are not there: recorded first, synthesized where nothing is recorded."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from prismdbg.capsule.log.reader import read_payload, read_payload_into
from prismdbg.errors import CapsuleError, PrismError
from prismdbg.model.collective import Collective, Failure, PayloadRef, State
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS, Movement
from prismdbg.rank.c10d import sparse
from prismdbg.rank.c10d.call import Call
from prismdbg.rank.emulation import filling
from prismdbg.rank.emulation.control import holds_it_already
from prismdbg.rank.replay.comparison import carries_object


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outputs are filled. `synthesized`: by assumption, not by record. `source`: sender of a receive from any.

    `again`: it was synthesized when it was recorded, and is the same. `failure`: nothing is filled, the collective
    failed when it was recorded and is to fail again.
    """

    synthesized: bool
    again: bool = False
    source: int = -1
    failure: Failure | None = None


class PeerSource(Protocol):
    """Asked once for every collective, on the issuing thread, instead of the backend.

    Fills `call.received` in place and says how; None when it knows nothing of this collective, and then it has
    touched nothing.
    """

    def answer(self, call: Call, record: Collective | None) -> Answer | None: ...


def refuse_captured(call: Call, last: Moment) -> None:
    """An error if a CUDA graph captures the call: to compare or to fill its tensors now breaks the capture, and no call
    is made when the graph runs. `last`: the moment of the call before."""
    if call.is_captured:
        raise PrismError(
            f"a CUDA graph captures {call.spec.label}, the next collective after {last}: "
            "a replay cannot answer it, because nothing is called when the graph runs",
            hint="replay the program without CUDA graphs, or run the rank with `prismdbg emulate`",
        )


class RecordedPeers:
    """Answers with the bytes that the rank received when it was recorded. They are read as they are asked for, not
    mapped: a capsule may lie on a file server, which may stop to answer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def answer(self, call: Call, record: Collective | None) -> Answer | None:
        if record is not None and record.state is State.FAILED and record.failure is not None:
            return Answer(synthesized=False, failure=record.failure)
        if record is None or record.state is not State.COMPLETED:
            return None
        if call.spec.movement is Movement.SCATTER and call.rank == call.root and carries_object():
            call.outputs[0].copy_(call.inputs[call.rank])  # of the object that it sends here, whatever its length
        elif any(t.numel() or t.is_sparse for t in call.received):
            if record.payload is None:
                return None
            self.fill(call.received, record.payload)
        return Answer(synthesized=record.synthesized, again=record.synthesized, source=record.source_rank)

    def fill(self, tensors: list[torch.Tensor], ref: PayloadRef) -> None:
        """Copies the payload into the tensors, one after another. `CapsuleError` where the sizes differ."""
        wanted = sum(t.numel() * t.element_size() for t in tensors if not t.is_sparse)
        if wanted > ref.size_bytes or (wanted < ref.size_bytes and not any(t.is_sparse for t in tensors)):
            raise CapsuleError(f"the log has {ref.size_bytes} bytes for a collective that receives {wanted}")
        if all(map(_is_plain, tensors)):
            read_payload_into([_memory(t) for t in tensors if t.numel()], self._folder, ref)
            return
        data = memoryview(read_payload(self._folder, ref))
        with torch.no_grad():
            for tensor in tensors:
                fill = sparse.restore if tensor.is_sparse else _fill_dense
                data = data[fill(tensor, data) :]


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its elements lie in the host's memory, one after another, as their values are."""
    is_lazy = tensor.is_conj() or tensor.is_neg()
    return not (tensor.is_sparse or is_lazy) and tensor.is_contiguous() and tensor.device.type == "cpu"


def _memory(tensor: torch.Tensor) -> memoryview:
    """Of a plain one. To read into it directly takes a fifth of the time of a buffer between."""
    size_bytes = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * size_bytes).from_address(tensor.data_ptr())).cast("B")


def _fill_dense(tensor: torch.Tensor, data: memoryview) -> int:
    size: int = tensor.numel() * tensor.element_size()
    if size:
        source = torch.frombuffer(data, dtype=torch.uint8, count=size)
        tensor.detach().copy_(source.clone().view(tensor.dtype).view(tensor.shape))
    return size


class SynthesizedPeers:
    """Echo: every peer sends what this rank sends. Sums scale with the group; what only a peer knows is zero, but for
    what DDP aligns with another rank, which this rank holds already: torch takes some of it as indices, unchecked."""

    def answer(self, call: Call, record: Collective | None) -> Answer:
        with torch.no_grad():
            outputs = [t.detach() for t in call.received]
            inputs = [t.detach() for t in call.inputs]
            self._fill(call, outputs, inputs)
        return Answer(synthesized=True, source=(call.rank + 1) % call.size if call.size > 1 else 0)

    def complete(self, record: Collective, size: int, outputs: list[torch.Tensor]) -> None:
        """Of a call that was under way in production, of which only its outputs are at hand: a reduction in place has
        what this rank sent there. `size`: of its group."""
        movement = OPS[record.op].movement if record.op in OPS else None
        with torch.no_grad():
            for tensor in outputs:
                if movement in (Movement.ALL_REDUCE, Movement.REDUCE):
                    filling.combine_equal(record.reduce_op, size, tensor.detach())
                elif movement is not Movement.BROADCAST or not holds_it_already():
                    tensor.detach().zero_()

    def _fill(self, call: Call, outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
        match call.spec.movement:
            case Movement.ALL_TO_ALL if [t.shape for t in outputs] != [t.shape for t in inputs]:
                filling.zeros(outputs)
            case Movement.BROADCAST if not holds_it_already():
                filling.zeros(outputs)
            case _:
                filling.echo(call, outputs, inputs)
