"""One short text for a value, by which it is told whether it changed: of tensors every byte counts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch

from prismdbg.errors import UsageError
from prismdbg.expr.objects import builtin, elements, exactly, is_a, kind_name, size
from prismdbg.rank.c10d import fingerprint
from prismdbg.rank.c10d.sparse import dense_parts
from prismdbg.rank.program.frames import tensors_in
from prismdbg.rank.program.tensor_parts import countable, is_readable, is_tensor, local

MAX_PARTS = 100_000
MAX_DEPTH = 8


def digest_of(value: Any) -> str:
    """Numbers, texts and tensors by value, containers and modules by what they hold, anything else by its type."""
    state = hashlib.blake2b(digest_size=8)
    for count, part in enumerate(_parts(value, 0)):
        if count > MAX_PARTS:
            raise UsageError(f"this contains more than {MAX_PARTS} values", hint="watch a part of it")
        state.update(part.encode() + b"\0")
    return state.hexdigest()


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
    elif depth < MAX_DEPTH and is_a(value, (list, tuple)):
        yield f"list {size(value)}"
        for item in elements(value):
            yield from _parts(item, depth + 1)
    elif exactly(value, (bool, int, float, complex, str, bytes, type(None))):
        yield f"{type(value).__name__} {value!r}"
    else:
        yield kind_name(value)
