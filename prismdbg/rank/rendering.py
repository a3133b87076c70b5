"""Values of the program as JSON values of bounded size. Runs none of the program's code: no `repr`, no properties.

`short` is one line; `render` is the whole: kind is tensor, module, scalar, sequence, mapping, object or more.
"""

from __future__ import annotations

import datetime
import enum
import pathlib
import types
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch

from prismdbg.rank.tensor_parts import local
from prismdbg.rank.tensor_summary import dtype_name, plain, summary

MAX_TEXT = 2000
MAX_ITEMS = 32
MAX_DEPTH = 3
MAX_VALUES = 300
MAX_MEASURED = 8

_SCALARS = (bool, int, float, complex, str, bytes, bytearray, type(None))
_SEQUENCES = (list, tuple, set, frozenset)
_TEXT_IS_PYTHONS_OR_TORCHS = (
    pathlib.PurePath,
    range,
    slice,
    datetime.date,
    datetime.timedelta,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.Size,
    torch.memory_format,
)


def render(value: Any) -> dict[str, Any]:
    """The value itself in full, what it holds in short."""
    return _Rendering().value(value, 0)


class _Rendering:
    """Counts what one answer holds, so that no value makes a large one."""

    def __init__(self) -> None:
        self._left = MAX_VALUES
        self._measures_left = MAX_MEASURED

    def value(self, value: Any, depth: int) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0:
            return {"kind": "more"}
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.nn.Module):
            return _module(value)
        if isinstance(value, _SCALARS):
            return {"kind": "scalar", "type": type_name(value), "value": scalar(value)}
        if depth < MAX_DEPTH:
            if isinstance(value, _SEQUENCES):
                return self._sequence(value, depth)
            if isinstance(value, dict):
                return self._mapping(value, depth)
            if fields := _fields(value):
                return self._object(value, fields, depth)
        return {"kind": "object", "type": type_name(value), "text": short(value)}

    def _tensor(self, value: torch.Tensor) -> dict[str, Any]:
        """Only so many tensors of a list are measured: each may be large."""
        self._measures_left -= 1
        if self._measures_left < 0:
            return {"kind": "object", "type": type_name(value), "text": short(value)}
        return summary(value)

    def _sequence(self, value: Any, depth: int) -> dict[str, Any]:
        items = [self.value(item, depth + 1) for item in islice(value, MAX_ITEMS)]
        return {"kind": "sequence", "type": type_name(value), "length": len(value), "items": items}

    def _mapping(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        """Keys that are tensors, as an optimizer's state has them, are told apart by their number."""
        items = [
            [f"{number}: {short(key)}" if isinstance(key, torch.Tensor) else short(key), self.value(item, depth + 1)]
            for number, (key, item) in enumerate(islice(dict.items(value), MAX_ITEMS))
        ]
        return {"kind": "mapping", "type": type_name(value), "length": len(value), "items": items}

    def _object(self, value: Any, fields: dict[str, Any], depth: int) -> dict[str, Any]:
        shown = [[name, self.value(item, depth + 1)] for name, item in islice(fields.items(), MAX_ITEMS)]
        return {"kind": "object", "type": type_name(value), "text": short(value), "fields": shown}


def short(value: Any) -> str:
    """One line that says what it is."""
    if isinstance(value, torch.Tensor):
        part = local(value)
        text = f"{dtype_name(part)}[{', '.join(map(str, part.shape))}] {part.device}"
        return text + (f", this rank's part of [{', '.join(map(str, value.shape))}]" if part is not value else "")
    if isinstance(value, enum.Enum):
        return f"{type_name(value)}.{value._name_}"
    if isinstance(value, _SCALARS):
        return f"{scalar(value)!r}" if isinstance(value, str) else str(scalar(value))
    if isinstance(value, _TEXT_IS_PYTHONS_OR_TORCHS):
        return str(value)[:MAX_TEXT]
    if isinstance(value, (*_SEQUENCES, dict)):
        return f"{type_name(value)} of {len(value)}"
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    return type_name(value)


def scalar(value: Any) -> Any:
    """As JSON has it; long texts and numbers are cut and say so."""
    if isinstance(value, str):
        text = str.__str__(value)
        return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"
    if isinstance(value, bytes | bytearray):
        text = bytes(value[:64]).hex(" ")
        return text if len(value) <= 64 else f"{text} ... ({len(value)} bytes)"
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if value.bit_length() <= 512 else f"a number of {value.bit_length()} bits"
    return plain(value)


def type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _fields(value: Any) -> dict[str, Any]:
    """What the object itself holds, without what begins with an underscore; classes and functions show none."""
    if isinstance(value, type | types.FunctionType | types.ModuleType | enum.Enum):
        return {}
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        held = {}
    slots = _slots(type(value))
    names = (*held, *slots) if isinstance(held, dict) else slots
    found = {}
    for name in islice((n for n in names if isinstance(n, str) and not n.startswith("_")), MAX_ITEMS):
        try:
            found[name] = held[name] if name in held else object.__getattribute__(value, name)
        except AttributeError:
            continue
    return found


def _slots(kind: type) -> tuple[str, ...]:
    """Names of real slots: a member descriptor runs no code of the program."""
    return tuple(
        name
        for base in kind.__mro__
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType)
    )


def _module(value: torch.nn.Module) -> dict[str, Any]:
    parameters = list(value.parameters())
    return {
        "kind": "module",
        "type": type_name(value),
        "training": value.training,
        "parameters": _elements(parameters),
        "trainable": _elements(p for p in parameters if p.requires_grad),
        "children": [[name, type_name(child)] for name, child in islice(value.named_children(), MAX_ITEMS)],
        "own": [
            [name, short(tensor)]
            for source in (value.named_parameters(recurse=False), value.named_buffers(recurse=False))
            for name, tensor in islice(source, MAX_ITEMS)
        ],
    }


def _elements(tensors: Iterable[torch.Tensor]) -> int:
    return sum(local(tensor).numel() for tensor in tensors)
