"""Files that a tensor of the rank is written into, from the bytes of its elements: NumPy's, safetensors', torch's.

None of them needs torch here, and only its own file is ever written.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from prismdbg.capsule import safetensors
from prismdbg.capsule.new_file import by_suffix
from prismdbg.errors import UsageError
from prismdbg.model import dtypes

_SAFETENSORS = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "int16": "I16",
    "uint16": "U16", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32",
    "float64": "F64", "int64": "I64", "uint64": "U64",
}  # fmt: skip
_IN_NUMPY = frozenset(name for name in dtypes.ITEM_BYTES if name in np.sctypeDict)
# Operations of pickle, as `pickletools` describes them: only these are written, and nothing is ever read.
_PROTO, _STOP, _MARK, _TUPLE, _GLOBAL, _REDUCE = b"\x80", b".", b"(", b"t", b"c", b"R"
_BINUNICODE, _LONG1, _BINPERSID, _NEWFALSE, _EMPTY_TUPLE = b"X", b"\x8a", b"Q", b"\x89", b")"
_INSTEAD = "choose a file name that ends in .pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorShape:
    """Of one tensor. dtype: torch's name of its element type, without `torch.`."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * dtypes.ITEM_BYTES[self.dtype]


Pieces = Iterable[bytes]
Write = Callable[[Path, str, TensorShape, Pieces], None]


def require_writer(path: Path) -> Write:
    """By the end of its name; `UsageError` where it is none of them."""
    return by_suffix(path, _WRITERS)


def write_npy(path: Path, _name: str, tensor: TensorShape, pieces: Pieces) -> None:
    """numpy/lib/format.py, version 1.0."""
    descr = np.lib.format.dtype_to_descr(numpy_dtype(tensor))
    with path.open("wb") as file:
        header = {"descr": descr, "fortran_order": False, "shape": tensor.shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.writelines(map(widen, pieces) if tensor.dtype == "bfloat16" else pieces)


def numpy_dtype(tensor: TensorShape) -> np.dtype[Any]:
    """float32 for bfloat16, which NumPy does not have; see `widen`."""
    name = "float32" if tensor.dtype == "bfloat16" else tensor.dtype
    if name not in _IN_NUMPY:
        raise UsageError(f"NumPy has no element type {name}", hint=_INSTEAD)
    return np.dtype(name)


def widen(piece: bytes) -> bytes:
    """bfloat16 as float32: its bits are the upper half."""
    return (np.frombuffer(piece, np.uint16).astype(np.uint32) << 16).tobytes()


def write_safetensors(path: Path, name: str, tensor: TensorShape, pieces: Pieces) -> None:
    if tensor.dtype not in _SAFETENSORS:
        raise UsageError(f"safetensors has no element type {tensor.dtype}", hint=_INSTEAD)
    with path.open("wb") as file:
        file.write(safetensors.header_of(safetensors.lay([(name, _SAFETENSORS[tensor.dtype], tensor.shape)])))
        file.writelines(pieces)


def write_pt(path: Path, _name: str, tensor: TensorShape, pieces: Pieces) -> None:
    """torch/serialization.py, the zip format: `torch.load(path)` gives the tensor, also with `weights_only`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled(tensor))
        archive.writestr("archive/byteorder", "little")
        with archive.open("archive/data/0", "w", force_zip64=True) as file:
            _copy(pieces, file)
        archive.writestr("archive/version", "3\n")


def _copy(pieces: Pieces, file: IO[bytes]) -> None:
    for piece in pieces:
        file.write(piece)


def pickled(tensor: TensorShape) -> bytes:
    """What torch pickles for one tensor, `torch._utils._rebuild_tensor_v3(...)`, written out in pickle's operations:
    its own pickler would need torch here."""
    strides = tuple(prod(tensor.shape[dimension + 1 :]) for dimension in range(len(tensor.shape)))
    out = io.BytesIO()
    out.write(_PROTO + b"\x02" + _named("torch._utils", "_rebuild_tensor_v3") + _MARK)
    out.write(_MARK + _text("storage") + _named("torch.storage", "UntypedStorage") + _text("0") + _text("cpu"))
    out.write(_number(tensor.size_bytes) + _TUPLE + _BINPERSID)
    out.write(_number(0) + _numbers(tensor.shape) + _numbers(strides) + _NEWFALSE)
    out.write(_named("collections", "OrderedDict") + _EMPTY_TUPLE + _REDUCE)
    out.write(_named("torch", tensor.dtype) + _TUPLE + _REDUCE + _STOP)
    return out.getvalue()


def _named(module: str, name: str) -> bytes:
    return _GLOBAL + f"{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    return _BINUNICODE + len(text.encode()).to_bytes(4, "little") + text.encode()


def _number(number: int) -> bytes:
    return _LONG1 + b"\x09" + number.to_bytes(9, "little")


def _numbers(numbers: Iterable[int]) -> bytes:
    return _MARK + b"".join(map(_number, numbers)) + _TUPLE


_WRITERS: dict[str, Write] = {".npy": write_npy, ".safetensors": write_safetensors, ".pt": write_pt}
SUFFIXES = tuple(_WRITERS)
