"""What a communication backend stages for a collective through torch's CPU allocator: modelled, not measured.

An emulated rank has no backend. The formulas are gloo's in torch 2.13 (`ProcessGroupGloo.cpp`) for CPU tensors, each
compared with a real run of every collective. What gloo itself allocates (`new`, sockets' buffers) never passes torch's
allocator: it is in no trace, nor here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from prismdbg.model.collective import Collective, Group, TensorMeta
from prismdbg.model.dtypes import ITEM_BYTES
from prismdbg.model.ops import check_complete

_KNOWN = "gloo"
_SCALAR_BYTES = 8  # the number of ranks, by which a mean is divided, and once more as the tensor's type


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """`at_once_bytes`: the most that one collective holds; all_bytes: what it allocates, one after another."""

    at_once_bytes: int = 0
    all_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendModel:
    """`at_once_bytes`: the most that one collective holds, that is `largest`. all_bytes: of all, one after another.

    not_modelled: collectives of other backends or devices, of which nothing is known.
    """

    at_once_bytes: int
    all_bytes: int
    largest: Collective | None
    collectives: int
    not_modelled: int


def staged(record: Collective, place: int) -> Staged:
    """By gloo, for one collective of CPU tensors. `place`: this rank's in the group."""
    mean = sum(_SCALAR_BYTES + _item(t) for t in record.inputs) if record.reduce_op == "AVG" else 0
    sizes = _Sizes(_bytes(record.inputs), _bytes(record.outputs), mean, record.root == place)
    model = _STAGED.get(record.op)  # a newer torch may have operators that are not known here
    return model(record, sizes) if model is not None else Staged()


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Bytes. `mean`: for dividing a sum."""

    inputs: int
    outputs: int
    mean: int
    is_root: bool


def _nothing(_record: Collective, _sizes: _Sizes) -> Staged:
    return Staged()


def _once(size_bytes: int) -> Staged:
    return Staged(at_once_bytes=size_bytes, all_bytes=size_bytes)


def _flattened_twice(_record: Collective, sizes: _Sizes) -> Staged:
    """One flat tensor to compare the outputs with, then one to receive into."""
    return Staged(at_once_bytes=sizes.outputs, all_bytes=2 * sizes.outputs)


def _gathered_coalesced(record: Collective, sizes: _Sizes) -> Staged:
    """Compared as if all were like the first."""
    both = _flat(record.inputs) + sizes.outputs
    return Staged(at_once_bytes=both, all_bytes=both + len(record.inputs) * _bytes(record.inputs[:1]))


def _reduced_copy(_record: Collective, sizes: _Sizes) -> Staged:
    return _once(sizes.inputs + sizes.mean)


_STAGED: dict[str, Callable[[Collective, _Sizes], Staged]] = {
    "allreduce_": lambda _record, sizes: _once(sizes.mean),
    "allreduce_coalesced_": lambda record, sizes: _once(_flat(record.inputs) + sizes.mean),
    "allgather_": _flattened_twice,
    "_allgather_base_": _flattened_twice,
    "allgather_coalesced_": _gathered_coalesced,
    "allgather_into_tensor_coalesced_": _gathered_coalesced,
    # a reduction to each, in copies but for this rank's own
    "reduce_scatter_": lambda _record, sizes: _once(sizes.inputs - sizes.outputs + sizes.mean),
    "_reduce_scatter_base_": _reduced_copy,
    "reduce_scatter_tensor_coalesced_": _reduced_copy,
    "broadcast_": _nothing,
    "reduce_": _nothing,
    "gather_": lambda record, sizes: _flattened_twice(record, sizes) if sizes.is_root else Staged(),
    "gather_into_tensor_": _nothing,  # gloo does not have it
    "scatter_": lambda _record, sizes: _once(sizes.inputs) if sizes.is_root else Staged(),  # only compared
    "alltoall_": lambda _record, sizes: _once(sizes.inputs + sizes.outputs),
    "alltoall_base_": _nothing,
    "send": _nothing,
    "recv_": _nothing,
    "recv_any_source_": _nothing,
    "barrier": _nothing,
    "monitored_barrier_": _nothing,
}
check_complete(_STAGED, "gloo's allocations per operator (memory/backend.py)")


def modelled(records: Sequence[Collective], groups: Mapping[str, Group], rank: int) -> BackendModel:
    """Of the collectives that this rank issued. Where asynchronous ones overlap, more is staged at once than here."""
    known = [r for r in records if _is_known(r, groups)]
    of_each = [(staged(r, _place(r, groups, rank)), r) for r in known]
    largest, by = max(of_each, key=lambda pair: pair[0].at_once_bytes, default=(Staged(), None))
    return BackendModel(
        at_once_bytes=largest.at_once_bytes,
        all_bytes=sum(one.all_bytes for one, _ in of_each),
        largest=by if largest.at_once_bytes else None,
        collectives=sum(one.all_bytes > 0 for one, _ in of_each),
        not_modelled=len(records) - len(known),
    )


def _is_known(record: Collective, groups: Mapping[str, Group]) -> bool:
    group = groups.get(record.group)
    tensors = (*record.inputs, *record.outputs)
    return group is not None and _KNOWN in group.backend and all(t.device == "cpu" for t in tensors)


def _place(record: Collective, groups: Mapping[str, Group], rank: int) -> int:
    ranks = groups[record.group].ranks
    return ranks.index(rank) if rank in ranks else -1


def _flat(tensors: Sequence[TensorMeta]) -> int:
    """A single one is used as it is."""
    return _bytes(tensors) if len(tensors) > 1 else 0


def _bytes(tensors: Iterable[TensorMeta]) -> int:
    return sum(prod(tensor.shape) * _item(tensor) for tensor in tensors)


def _item(tensor: TensorMeta) -> int:
    return ITEM_BYTES.get(tensor.dtype, 0)
