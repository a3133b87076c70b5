"""One short text for a value, by which it is told whether it changed: of tensors every byte counts."""

from __future__ import annotations

import array
import collections
import enum
import hashlib
import sys
from collections.abc import Iterator
from typing import Any

import torch

from prismdbg.errors import UsageError
from prismdbg.expr.objects import SETS, builtin, elements, exactly, is_a, kind_name, size, static_attribute
from prismdbg.model.sizes import as_given
from prismdbg.rank.c10d import fingerprint
from prismdbg.rank.c10d.sparse import dense_parts
from prismdbg.rank.program.frames import tensors_in
from prismdbg.rank.program.tensor_parts import countable, is_readable, is_tensor, local

MAX_PARTS = 100_000
MAX_DEPTH = 8
MAX_BYTES = 1 << 30  # of one array, which may be a file: it is read at each collective
CHUNK_BYTES = 1 << 20
_BY_TEXT = (bool, int, float, complex, str, type(None), range, torch.dtype, torch.device)


def digest_of(value: Any) -> str:
    """Numbers, texts, tensors and arrays by value, containers and modules by what they hold, anything else in these by
    its type. `UsageError` for anything else alone: it would never change."""
    return _digest(_parts(value, 0))


def _digest(parts: Iterator[str]) -> str:
    state = hashlib.blake2b(digest_size=8)
    for count, part in enumerate(parts):
        if count > MAX_PARTS:
            raise _too_many()
        state.update(part.encode() + b"\0")
    return state.hexdigest()


def _too_many() -> UsageError:
    return UsageError(f"this contains more than {MAX_PARTS} values", hint="watch a part of it")


def _parts(value: Any, depth: int) -> Iterator[str]:
    value = builtin(value)
    if is_tensor(value) and is_readable(value):
        value = local(value)
        read = value.layout is torch.sparse_coo or countable(value)
        content = f"{fingerprint.of(dense_parts([value])):x}" if read else "unread"
        yield f"{value.dtype}{tuple(value.shape)}{content}"
    elif is_a(value, torch.nn.Module):
        yield from _parts({**dict(tensors_in(value, "_parameters")), **dict(tensors_in(value, "_buffers"))}, depth)
    elif depth < MAX_DEPTH and is_a(value, dict):
        yield f"dict {size(value)}"
        for key, item in dict.items(value):
            yield from _parts(key, depth + 1)
            yield from _parts(item, depth + 1)
    elif depth < MAX_DEPTH and is_a(value, (list, tuple, collections.deque)):
        yield f"list {size(value)}"
        for item in elements(value):
            yield from _parts(item, depth + 1)
    elif depth < MAX_DEPTH and is_a(value, SETS):
        if size(value) > MAX_PARTS:  # all are sorted before the first is counted
            raise _too_many()
        yield f"set {size(value)}"
        yield from sorted(_digest(_parts(item, depth + 1)) for item in elements(value))
    elif depth < MAX_DEPTH and is_a(value, enum.Enum):
        yield kind_name(value)
        yield from _parts(static_attribute(value, "value"), depth + 1)
    elif exactly(value, _BY_TEXT):
        yield f"{type(value).__name__} {value!r}"
    elif is_a(value, array.array):
        item_bytes = array.array.itemsize.__get__(value)
        yield f"{array.array.typecode.__get__(value)} {_hashed_slices(array.array, value, item_bytes)}"
    elif exactly(value, (bytes, bytearray)):
        yield f"{type(value).__name__} {_hashed_slices(type(value), value, 1)}"
    elif (numbers := _of_numpy(value)) is not None:
        yield numbers
    elif depth:
        yield kind_name(value)
    else:
        raise UsageError(
            f"changes of a {kind_name(value)} cannot be seen",
            hint="name a part of it that is a number, a text, a tensor, an array or a container",
        )


def _of_numpy(value: Any) -> str | None:
    """An array's or a number's type and content; None for anything else, and for what holds objects."""
    numpy = sys.modules.get("numpy")
    kind = next((kind for kind in (numpy.ndarray, numpy.generic) if is_a(value, kind)), None) if numpy else None
    if kind is None or (dtype := kind.dtype.__get__(value)).hasobject:
        return None
    content = _hashed(kind.nbytes.__get__(value), _numpy_chunks(numpy, kind, value))
    return f"{dtype}{kind.shape.__get__(value)}{content}"


def _numpy_chunks(numpy: Any, kind: Any, value: Any) -> Iterator[bytes]:
    if kind is numpy.generic:
        yield kind.tobytes(value)
        return
    plain = kind.view(value, kind)  # without a say of the program's own class
    items = max(CHUNK_BYTES // max(plain.itemsize, 1), 1)
    flags = ["external_loop", "buffered", "zerosize_ok"]
    for chunk in numpy.nditer(plain, flags=flags, order="C", buffersize=items):
        yield chunk.tobytes()


def _hashed_slices(kind: Any, value: Any, item_bytes: int) -> str:
    """Slices are copies: whoever resizes a buffer that is being read gets an error."""
    items = max(CHUNK_BYTES // item_bytes, 1)
    chunks = (kind.__getitem__(value, slice(at, at + items)) for at in range(0, size(value), items))
    return _hashed(size(value) * item_bytes, chunks)


def _hashed(size_bytes: int, chunks: Iterator[Any]) -> str:
    if size_bytes > MAX_BYTES:
        raise UsageError(f"this is larger than {as_given(MAX_BYTES)}", hint="watch a slice of it")
    state = hashlib.blake2b(digest_size=8)
    for chunk in chunks:
        state.update(chunk)
    return state.hexdigest()
