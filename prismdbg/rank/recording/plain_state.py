"""Training state as JSON and tensors, and back: dictionaries, lists, numbers, texts and tensors, never a pickle.

Plain values stand in JSON as they are; what JSON does not know is a list whose first word says what it is. Every tensor
has a name, and its bytes stand elsewhere under that name.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from prismdbg.capsule.limits import MAX_STATE_DEPTH
from prismdbg.errors import CapsuleError, UsageError

Packed = Any
DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn, "I16": torch.int16, "U16": torch.uint16, "F16": torch.float16,
    "BF16": torch.bfloat16, "I32": torch.int32, "U32": torch.uint32, "F32": torch.float32, "F64": torch.float64,
    "I64": torch.int64, "U64": torch.uint64,
}  # fmt: skip
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_EXACT = 1 << 53  # whole numbers up to here are the same in every reader of JSON
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class Packer:
    """Packs values; gathers their tensors, which are not copied yet."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}

    def pack(self, value: Any, path: str, depth: int = 0) -> Packed:
        """`UsageError` names the first part of it that cannot be written plainly. `path` names it, and its tensors."""
        if depth > MAX_STATE_DEPTH:
            raise UsageError(
                f"{path} is nested more than {MAX_STATE_DEPTH} levels deep", hint="use a flatter state in state_dict"
            )
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int:
            return value if abs(value) <= _EXACT else ["int", str(value)]
        if type(value) is float:
            return value if math.isfinite(value) else ["float", str(value)]
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if type(value).__module__ == "numpy":
            return self._of_numpy(value, path)
        if type(value) in (bytes, bytearray):
            return [
                "bytes",
                self._add(path, torch.frombuffer(bytearray(value or b"\0"), dtype=torch.uint8)),
                len(value),
            ]
        return self._container(value, path, depth)

    def _container(self, value: Any, path: str, depth: int) -> Packed:
        def each(items: Iterable[Any]) -> list[Packed]:
            return [self.pack(item, f"{path}.{number}", depth + 1) for number, item in enumerate(items)]

        if isinstance(value, dict):
            pairs = [[_key(key, path), self.pack(item, f"{path}.{key}", depth + 1)] for key, item in value.items()]
            return ["counter" if isinstance(value, Counter) else "dict", pairs]
        if type(value) is list:
            return ["list", each(value)]
        if isinstance(value, tuple):
            return ["tuple", each(value)]
        if type(value) in (set, frozenset):
            return ["set", each(sorted(value, key=repr))]
        if isinstance(value, torch.dtype | torch.device):
            return [type(value).__name__, str(value)]
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise UsageError(
            f"{path} is of type {kind}, which cannot be written as plain data",
            hint="convert it in state_dict() to numbers, strings, lists, dictionaries or tensors",
        )

    def _tensor(self, value: torch.Tensor, path: str) -> Packed:
        if hasattr(value, "to_local") and hasattr(value, "device_mesh"):
            local = value.to_local()
            return ["dtensor", self._add(path, local), *_spread(value), list(value.shape), list(value.stride())]
        if type(value) not in _TENSORS or value.layout is not torch.strided or value.is_quantized:
            kind = f"{type(value).__name__} of layout {value.layout}"
            raise UsageError(
                f"{path} is a {kind}, which cannot be written as a plain tensor",
                hint="use a dense tensor in state_dict",
            )
        return ["tensor", self._add(path, value), value.device.type]

    def _of_numpy(self, value: Any, path: str) -> Packed:
        numpy = sys.modules["numpy"]
        kind = "array" if isinstance(value, numpy.ndarray) else "number"
        try:
            tensor = torch.from_numpy(numpy.array(value, copy=True).reshape(-1))
        except TypeError:
            raise UsageError(
                f"{path} is a numpy value of type {value.dtype}, which cannot be written as plain data",
                hint="use a conversion to a tensor or a number in state_dict",
            ) from None
        return [kind, self._add(path, tensor), list(value.shape)]

    def _add(self, path: str, tensor: torch.Tensor) -> str:
        if tensor.dtype not in DTYPE_NAMES:
            raise UsageError(
                f"{path} is a tensor of {tensor.dtype}, which safetensors does not have",
                hint="use a conversion to another type in state_dict",
            )
        name, number = path, 1
        while name in self.tensors:
            number += 1
            name = f"{path}~{number}"
        self.tensors[name] = tensor.detach()
        return name


def _key(key: Any, path: str) -> Packed:
    if key is None or type(key) in (bool, str, int) or (type(key) is float and math.isfinite(key)):
        return key
    raise UsageError(
        f"{path} has a key of type {type(key).__qualname__}, which cannot be written as plain data",
        hint="use texts or whole numbers as keys",
    )


def _spread(value: Any) -> tuple[Packed, str]:
    """How a DTensor is spread over ranks: its mesh, and its placements as text. Looked up, never evaluated."""
    mesh = value.device_mesh
    return [mesh.mesh.tolist(), list(mesh.mesh_dim_names or ())], repr(value.placements)


class Unpacker:
    """The way back. `tensor_of` gives a new tensor by its name. DTensors are made on the meshes of `like`, for a mesh
    is a set of live process groups and cannot be read."""

    def __init__(self, tensor_of: Callable[[str], torch.Tensor], like: Iterable[torch.Tensor] = ()) -> None:
        self._tensor_of = tensor_of
        self._meshes: dict[str, Any] = {}
        self._placements: dict[str, Any] = {}
        for tensor in like:
            if hasattr(tensor, "device_mesh") and hasattr(tensor, "placements"):
                mesh, placements = _spread(tensor)
                self._meshes[repr(mesh)] = tensor.device_mesh
                self._placements[placements] = tensor.placements

    def unpack(self, packed: Packed, depth: int = 0) -> Any:
        """`CapsuleError` for what `Packer` does not write."""
        if packed is None or type(packed) in (bool, str, int, float):
            return packed
        if depth > MAX_STATE_DEPTH or not isinstance(packed, list) or not packed:
            raise _altered("a value")
        try:
            return self._of(packed[0], packed[1:], depth)
        except (ValueError, TypeError, IndexError, KeyError, RuntimeError) as error:
            raise _altered(str(packed[0])[:20]) from error

    def _of(self, kind: Any, rest: list[Any], depth: int) -> Any:
        def each(items: Any) -> Iterator[Any]:
            return (self.unpack(item, depth + 1) for item in items)

        match kind:
            case "int":
                return int(rest[0])
            case "float":
                return float(rest[0])
            case "dict" | "counter":
                pairs = {key: self.unpack(item, depth + 1) for key, item in rest[0]}
                return Counter(pairs) if kind == "counter" else pairs
            case "list":
                return list(each(rest[0]))
            case "tuple":
                return tuple(each(rest[0]))
            case "set":
                return set(each(rest[0]))
            case "dtype":
                return {str(dtype): dtype for dtype in DTYPE_NAMES}[rest[0]]
            case "device":
                return torch.device(rest[0])
            case "bytes":
                return bytes(self._tensor_of(rest[0]).tolist())[: int(rest[1])]
            case "tensor":
                return self._tensor_of(rest[0]).to(_device(rest[1]))
            case "dtensor":
                return self._dtensor(*rest)
            case "array" | "number":
                array = self._tensor_of(rest[0]).numpy().reshape(rest[1])
                return array if kind == "array" else array[()]
        raise ValueError(f"unknown kind {kind!r}")

    def _dtensor(self, name: str, mesh: Packed, placements: str, shape: list[int], stride: list[int]) -> Any:
        from torch.distributed.tensor import DTensor

        on = self._meshes[repr(mesh)]
        local = self._tensor_of(name).to(on.device_type)
        spread, whole = self._placements[placements], torch.Size(shape)
        return DTensor.from_local(local, on, spread, run_check=False, shape=whole, stride=tuple(stride))


def _device(kind: str) -> str:
    """Where this machine has no device of that kind, the CPU: whoever loads the tensor moves it."""
    available = torch.accelerator.is_available() and torch.accelerator.current_accelerator().type == kind
    return kind if available else "cpu"


def _altered(what: str) -> CapsuleError:
    return CapsuleError(
        f"the state snapshot holds {what!r}, which cannot be read",
        hint="capture the rank again: it is damaged or was altered",
    )


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors of nested dictionaries, lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
