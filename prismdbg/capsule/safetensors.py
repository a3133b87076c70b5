"""The safetensors format: eight bytes with the length of a JSON header, the header, then the bytes of all tensors.

Source: https://github.com/huggingface/safetensors, section Format. Bytes are little-endian and in C order, and tensors
follow each other without holes. Only the header is read and written here; such a file is never run or unpickled.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prismdbg.capsule import checked_json
from prismdbg.capsule.limits import MAX_HEADER_BYTES
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.model.sizes import size

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8,
}  # fmt: skip
_LENGTH_BYTES = 8
_METADATA = "__metadata__"
_MOST_DIMENSIONS = 64
_ALTERED = "the file is damaged or was altered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One tensor. `begin` and `end` count from the first byte after the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.begin


def lay(tensors: Iterable[tuple[str, str, Sequence[int]]]) -> list[Part]:
    """Where each (name, dtype, shape) stands. The widest types come first, so that each is aligned without holes."""
    parts: list[Part] = []
    at = 0
    for name, dtype, shape in sorted(tensors, key=lambda t: -ITEM_BYTES[t[1]]):
        size_bytes = ITEM_BYTES[dtype] * math.prod(shape)
        parts.append(Part(name=name, dtype=dtype, shape=tuple(shape), begin=at, end=at + size_bytes))
        at += size_bytes
    return parts


def header_of(parts: Iterable[Part]) -> bytes:
    """What stands before the tensors' bytes, a multiple of eight long. `UsageError` if `read_header` would refuse its
    size."""
    fields = {p.name: {"dtype": p.dtype, "shape": list(p.shape), "data_offsets": [p.begin, p.end]} for p in parts}
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    if len(text) > MAX_HEADER_BYTES:
        raise UsageError(
            f"the names and shapes of the tensors take {size(len(text))}, more than "
            f"{size(MAX_HEADER_BYTES)}: join small tensors in state_dict"
        )
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def read_header(path: Path) -> tuple[Mapping[str, Part], int]:
    """The tensors by name, and where the first one's bytes begin in the file. `CapsuleError` for what is not whole."""
    size = path.stat().st_size
    first = _read(path, _LENGTH_BYTES)
    length = int.from_bytes(first, "little")
    if len(first) < _LENGTH_BYTES or length > min(MAX_HEADER_BYTES, size - _LENGTH_BYTES):
        raise CapsuleError(f"{path} has no safetensors header", hint=_ALTERED)
    data = _read(path, _LENGTH_BYTES + length)
    fields = checked_json.parse(data[_LENGTH_BYTES:], str(path))
    parts = [_part(name, fields.fields(name)) for name in fields.value if name != _METADATA]
    _require_whole(path, parts, size - _LENGTH_BYTES - length)
    return {part.name: part for part in parts}, _LENGTH_BYTES + length


def _read(path: Path, size_bytes: int) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read(size_bytes)


def _part(name: str, fields: checked_json.Fields) -> Part:
    dtype, shape, offsets = fields.text("dtype"), fields.integers("shape"), fields.integers("data_offsets")
    if dtype not in ITEM_BYTES:
        fields.fail("dtype", f"is {dtype[:20]!r}, not one of {', '.join(ITEM_BYTES)}")
    if len(shape) > _MOST_DIMENSIONS or any(extent < 0 for extent in shape):
        fields.fail("shape", "is not a shape")
    if len(offsets) != 2 or not 0 <= offsets[0] <= offsets[1]:
        fields.fail("data_offsets", "are not two offsets")
    if offsets[1] - offsets[0] != ITEM_BYTES[dtype] * math.prod(shape):
        fields.fail("data_offsets", "do not fit the shape")
    return Part(name=name, dtype=dtype, shape=shape, begin=offsets[0], end=offsets[1])


def _require_whole(path: Path, parts: Sequence[Part], size_bytes: int) -> None:
    """One after another, from the first byte to the last."""
    at = 0
    for part in sorted(parts, key=lambda p: (p.begin, p.end)):
        if part.begin != at:
            raise CapsuleError(f"{path}: {part.name[:80]!r} begins at {part.begin}, expected {at}", hint=_ALTERED)
        at = part.end
    if at != size_bytes:
        raise CapsuleError(f"{path} holds {size_bytes} bytes of tensors, expected {at}", hint=_ALTERED)
