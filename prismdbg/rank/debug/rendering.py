"""Values of the program as JSON values of bounded size. Runs none of the program's code: no `repr`, no properties.

`short` is one line; `render` is the whole: kind is tensor, module, scalar, sequence, mapping, object or more.
"""

from __future__ import annotations

import datetime
import enum
import pathlib
import types
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Any

import torch

from prismdbg.expr.objects import (
    builtin,
    elements,
    exactly,
    is_a,
    kind_name,
    kind_text,
    of_name,
    size,
    slots,
    vars_of,
)
from prismdbg.rank.debug.tensor_summary import dtype_name, plain, summary
from prismdbg.rank.program.frames import module_part, tensors_in
from prismdbg.rank.program.tensor_parts import is_readable, is_sharded, is_tensor, local, requires_grad, sizes_of

MAX_TEXT = 2000
MAX_ITEMS = 32
MAX_DEPTH = 3
MAX_VALUES = 300
MAX_MEASURED = 8
_PATH_PARTS = ("_str", "_raw_paths", "_parts")  # of Python from 3.11 on

_SCALARS = (bool, int, float, complex, str, bytes, bytearray, type(None))
_SEQUENCES = (list, tuple, set, frozenset)
_PATHS = (pathlib.PurePosixPath, pathlib.PosixPath)
_TEXT_IS_PYTHONS_OR_TORCHS = (
    range,
    slice,
    datetime.date,
    datetime.datetime,
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
        if is_tensor(value) and is_readable(value):
            return self._tensor(value)
        if is_a(value, torch.nn.Module):
            return _module(value)
        if is_a(value, _SCALARS):
            return _scalar(value)
        if depth < MAX_DEPTH:
            if is_a(value, _SEQUENCES):
                return self._sequence(value, depth)
            if is_a(value, dict):
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
        items = [self.value(item, depth + 1) for item in islice(elements(value), MAX_ITEMS)]
        return {"kind": "sequence", "type": type_name(value), "length": size(value), "items": items}

    def _mapping(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        """Keys that are tensors, as an optimizer's state has them, are told apart by their number."""
        items = [
            [f"{number}: {short(key)}" if is_tensor(key) else short(key), self.value(item, depth + 1)]
            for number, (key, item) in enumerate(islice(dict.items(value), MAX_ITEMS))
        ]
        return {"kind": "mapping", "type": type_name(value), "length": size(value), "items": items}

    def _object(self, value: Any, fields: dict[str, Any], depth: int) -> dict[str, Any]:
        shown = [[name, self.value(item, depth + 1)] for name, item in islice(fields.items(), MAX_ITEMS)]
        return {"kind": "object", "type": type_name(value), "text": short(value), "fields": shown}


def _scalar(value: Any) -> dict[str, Any]:
    """A text `nan` says whether it is a number: a float may be of any class."""
    shown = {"kind": "scalar", "type": type_name(value), "value": scalar(value)}
    return {**shown, "is_float": True} if is_a(value, float) and isinstance(shown["value"], str) else shown


def short(value: Any) -> str:
    """One line that says what it is."""
    if is_tensor(value) and is_readable(value):
        part = local(value)
        text = f"{dtype_name(part)}[{', '.join(map(str, part.shape))}] {part.device}"
        return text + (f", this rank's part of [{', '.join(map(str, sizes_of(value)))}]" if is_sharded(value) else "")
    if is_a(value, enum.Enum):
        return f"{type_name(value)}.{_text(of_name(vars_of(value) or {}, '_name_'))}"
    if is_a(value, _SCALARS):
        return f"{scalar(value)!r}" if is_a(value, str) else str(scalar(value))
    if exactly(value, _TEXT_IS_PYTHONS_OR_TORCHS) and not _asks_the_program(value):
        with suppress(ValueError):  # a range of numbers that have too many digits
            return str(value)[:MAX_TEXT]
    if exactly(value, _PATHS):
        return (_path_text(value) or type_name(value))[:MAX_TEXT]
    if is_a(value, (*_SEQUENCES, dict)):
        return f"{type_name(value)} of {size(value)}"
    if is_a(value, type):
        return kind_text(value) if "." in kind_text(value) else f"builtins.{kind_text(value)}"
    if type(value) is types.FunctionType:
        return f"{_text(value.__module__)}.{_text(value.__qualname__)}"
    if type(value) is types.BuiltinFunctionType:
        return f"{_owner_of(value)}.{value.__name__}"
    if type(value) is types.ModuleType:
        return f"module {_text(of_name(vars_of(value) or {}, '__name__'))}"
    return type_name(value)


def _text(name: Any) -> str:
    """What a program may have set to any object."""
    return builtin(name) if is_a(name, str) else "?"


def _owner_of(function: types.BuiltinFunctionType) -> str:
    """Its module, or the class of what it is a method of. Its own `__qualname__` asks that class."""
    owner: Any = function.__self__
    if owner is None or type(owner) is types.ModuleType:
        return _text(function.__module__)
    return kind_text(owner) if is_a(owner, type) else kind_name(owner)


def _path_text(path: pathlib.PurePath) -> str:
    """From what it holds, which it would ask for its text: the program may have replaced that. Empty where that is no
    plain text."""
    own = slots(type(path))
    held = {name: own[name].__get__(path) for name in _PATH_PARTS if name in own and _is_set(own[name], path)}
    if type(text := held.get("_str")) is str:
        return text
    parts = held.get("_raw_paths", held.get("_parts"))
    if type(parts) is not list or not all(type(part) is str for part in parts):
        return ""
    texts: list[str] = list(parts)
    begin = max((number for number, text in enumerate(texts) if text.startswith("/")), default=0)
    joined = "/".join(texts[begin:])
    root = "/" * joined.startswith("/")
    return root + "/".join(part for part in joined.split("/") if part not in ("", ".")) or "."


def _is_set(slot: types.MemberDescriptorType, owner: Any) -> bool:
    try:
        slot.__get__(owner)
    except AttributeError:
        return False
    return True


def scalar(value: Any) -> Any:
    """As JSON has it; long texts and numbers are cut and say so."""
    value = builtin(value)
    if isinstance(value, str):
        text = str.__str__(value)
        return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"
    if isinstance(value, bytes | bytearray):
        text = _first_bytes(value).hex(" ")
        return text if size(value) <= 64 else f"{text} ... ({size(value)} bytes)"
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if value.bit_length() <= 512 else f"a number of {value.bit_length()} bits"
    return plain(value)


def _first_bytes(value: Any) -> bytes:
    """The first of them."""
    return bytes(islice(elements(value), 64))


def _asks_the_program(value: Any) -> bool:
    """For its text: a slice and a size ask what they hold, a time its zone."""
    if type(value) is torch.Size:
        return not all(exactly(part, (int,)) for part in elements(value))
    if type(value) is slice:
        return not all(exactly(part, (int, type(None))) for part in (value.start, value.stop, value.step))
    zone = value.tzinfo if type(value) is datetime.datetime else None
    return not exactly(zone, (type(None), datetime.timezone))


def is_scalar(value: Any) -> bool:
    return is_a(value, _SCALARS)


def type_name(value: Any) -> str:
    return kind_name(value)


def _fields(value: Any) -> dict[str, Any]:
    """What the object itself holds, without what begins with an underscore; classes and functions show none."""
    if is_a(value, (type, types.FunctionType, types.ModuleType, enum.Enum)):
        return {}
    held = vars_of(value) or {}
    members = slots(type(value))
    names = (*held, *members)
    found = {}
    for name in islice((n for n in names if type(n) is str and not n.startswith("_")), MAX_ITEMS):
        try:
            own = of_name(held, name, held)
            found[name] = members[name].__get__(value) if own is held else own
        except (AttributeError, TypeError):  # not set, or a slot of another class
            continue
    return found


def _module(value: torch.nn.Module) -> dict[str, Any]:
    parameters = [tensor for _, tensor in tensors_in(value, "_parameters") if is_readable(tensor)]
    return {
        "kind": "module",
        "type": type_name(value),
        "training": of_name(vars_of(value) or {}, "training") is True,
        "parameters": _elements(parameters),
        "trainable": _elements(p for p in parameters if requires_grad(p)),
        "children": [
            [name, type_name(child)] for name, child in islice(module_part(value, "_modules").items(), MAX_ITEMS)
        ],
        "own": [
            [name, short(tensor)]
            for kind in ("_parameters", "_buffers")
            for name, tensor in islice(module_part(value, kind).items(), MAX_ITEMS)
        ],
    }


def _elements(tensors: Iterable[torch.Tensor]) -> int:
    return sum(local(tensor).numel() for tensor in tensors)
