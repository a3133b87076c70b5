"""The names that torch writes into traces and dumps, as those of `model/ops.py` and `model/dtypes.py`."""

from __future__ import annotations

from prismdbg.model.dtypes import NUMBERS
from prismdbg.model.ops import OPS

UNKNOWN = "unknown"

# torch's profiling titles, without the backend: what `c10d::` operator the program called.
OPS_BY_TITLE = {spec.label: name for name, spec in OPS.items()} | {
    "_broadcast_oop": "broadcast_",
    "_reduce_oop": "reduce_",
    "_all_gather_base": "_allgather_base_",
    "all_gather_single": "_allgather_base_",
    "all_gather_v": "allgather_",
    "ALLGATHER_coalesced": "allgather_into_tensor_coalesced_",
    "_reduce_scatter_base": "_reduce_scatter_base_",
    "reduce_scatter_single": "_reduce_scatter_base_",
    "reduce_scatter_v": "reduce_scatter_",
    "REDUCE_SCATTER_coalesced": "reduce_scatter_tensor_coalesced_",
    "all_to_all_v_single": "alltoall_base_",
    "all_reduce_barrier": "barrier",
    "allreduce_coalesced": "allreduce_coalesced_",
    "sparse_all_reduce": "allreduce_",
    "recvAnySource": "recv_any_source_",
}
# Of `record_param_comms`, where they are not a title.
OPS_BY_COMMS_NAME = OPS_BY_TITLE | {
    "allreduce": "allreduce_",
    "allreduce_sparse": "allreduce_",
    "_allgather_base": "_allgather_base_",
    "allgather_into_tensor_coalesced": "allgather_into_tensor_coalesced_",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced_",
    "all_to_allv": "alltoall_base_",
}
# Backends of devices: they queue what the host issues. "device" where several makers have one of that name.
DEVICES = {
    "nccl": "cuda",
    "ncclx": "cuda",
    "rccl": "cuda",
    "rcclx": "cuda",
    "xccl": "xpu",
    "hccl": "device",
    "mccl": "device",
}
_LONGEST = 100  # many tensors of a dump can share a text, and each keeps what is made of it
# c10::toString of an element type, where it is not the name in lower case, and C++'s names of types.
_DTYPES = {
    "byte": "uint8",
    "char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "complexhalf": "complex32",
    "complexfloat": "complex64",
    "complexdouble": "complex128",
    "unsigned char": "uint8",
    "signed char": "int8",
    "short int": "int16",
    "long int": "int64",
    "c10::complex<c10::half>": "complex32",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}


def dtype_of(text: str) -> str:
    """`float32` for `Float`, `float`, `Tensor(float)`; the text itself in lower case for what is not known."""
    lower = text[:_LONGEST].lower().removeprefix("tensor(").removesuffix(")")
    return _DTYPES.get(lower, lower.removeprefix("c10::") or UNKNOWN)


def device_of(backends: str) -> str:
    """Of a group's backends (`cpu:gloo,cuda:nccl`), the device whose backend queues what the host issues; `cpu` where
    there is none."""
    pairs = (pair.rpartition(":") for pair in backends[:_LONGEST].split(","))
    found = (device.strip() or DEVICES[backend] for device, _, backend in pairs if backend in DEVICES)
    return next((device for device in found if device != "cpu"), "cpu")


def known_dtype(text: str) -> str:
    """As `dtype_of`, but `unknown` for what is no element type (`TensorList`, `Scalar`)."""
    name = dtype_of(text)
    return name if name in NUMBERS else UNKNOWN
