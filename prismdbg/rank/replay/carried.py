"""Variables that a training loop carries from one step to the next: a batch that it drew ahead, a count."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from types import CodeType, FrameType
from typing import Any

import torch

from prismdbg.rank.program.frames import locals_of

_VARIABLE = re.compile("(LOAD|STORE)_(?:FAST|NAME|GLOBAL|DEREF)(?!_AND_CLEAR)")
_LOOKED_AT = 100  # of the items of a list


class CarriedVariables:
    """Those of the frame that calls `restore_point`, which had a value before the training state was loaded."""

    def __init__(self, frame: FrameType | None) -> None:
        self._frame = frame
        names = _read_and_assigned(frame) if frame is not None else []
        values = _values(frame, names)
        self._before = {name: id(value) for name, value in values.items() if _is_data(value)}

    def not_loaded(self) -> list[str]:
        """`X (Tensor)`: variables that still have the value from before, so no registered object has loaded them."""
        values = _values(self._frame, self._before)
        return [f"{name} ({type(v).__name__})" for name, v in values.items() if id(v) == self._before[name]]


def _values(frame: FrameType | None, names: Mapping[str, int] | list[str]) -> dict[str, Any]:
    if frame is None:
        return {}
    own = locals_of(frame)
    return {name: own.get(name, frame.f_globals.get(name)) for name in names}


def _is_data(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(islice(value.values(), _LOOKED_AT))
    if isinstance(value, list | tuple):
        return any(isinstance(item, torch.Tensor) for item in value[:_LOOKED_AT])
    return isinstance(value, torch.Tensor | int | float)


def _read_and_assigned(frame: FrameType) -> list[str]:
    """Names that the code after the call reads, and assigns only later, as a loop does with what it carries."""
    read: set[str] = set()
    assigned: dict[str, bool] = {}  # whether it was read before, and is not what gets the step that the call gives
    for is_read, name, line in _uses(frame.f_code, frame.f_lasti):
        if is_read:
            read.add(name)
        else:
            assigned.setdefault(name, name in read and line > frame.f_lineno)
    return [name for name, is_carried in assigned.items() if is_carried]


def _uses(code: CodeType, after: int) -> Iterator[tuple[bool, str, int]]:
    """Whether a variable is read, its name and its line. One instruction may use two."""
    for each in dis.get_instructions(code):
        if each.offset > after:
            names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
            line = (each.positions and each.positions.lineno) or 0
            for kind, name in zip(_VARIABLE.findall(each.opname), names, strict=False):
                yield kind == "LOAD", str(name), line
