"""Variables that a training loop carries from one step to the next: a batch drawn ahead, a count, an iterator."""

from __future__ import annotations

import dis
import io
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from types import CodeType, FrameType
from typing import Any

import torch

from prismdbg.rank.program.frames import locals_of

_VARIABLE = re.compile("(LOAD|STORE)_(?:FAST|NAME|GLOBAL|DEREF)(?!_AND_CLEAR)")
_LOOKED_AT = 100  # of the items of a list


class CarriedVariables:
    """Those of the frame that calls `restore_point`, which had a value before the training state was loaded."""

    def __init__(self, frame: FrameType | None, registered: Iterable[Any] = ()) -> None:
        self._frame = frame
        loads = {id(thing) for thing in registered}  # in place
        used = _used(frame) if frame is not None else {}
        self._before = {
            name: id(value)
            for name, value in _values(frame, used).items()
            if id(value) not in loads and (_is_iterator(value) or (used[name] and _is_data(value)))
        }

    def not_loaded(self) -> list[str]:
        """`X (Tensor)`: variables that still have the value from before, so no registered object has loaded them."""
        values = _values(self._frame, self._before)
        return [f"{name} ({type(v).__name__})" for name, v in values.items() if id(v) == self._before[name]]


def _values(frame: FrameType | None, names: Iterable[str]) -> dict[str, Any]:
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


def _is_iterator(value: Any) -> bool:
    """Whether it knows how far it is, apart from an open file."""
    return hasattr(type(value), "__next__") and not isinstance(value, io.IOBase)


def _used(frame: FrameType) -> dict[str, bool]:
    """Names that the code after the call reads, and whether it assigns them only later, as a loop does with what it
    carries."""
    read: set[str] = set()
    assigned: dict[str, bool] = {}  # whether it was read before, and is not what gets the step that the call gives
    for is_read, name, line in _uses(frame.f_code, frame.f_lasti):
        if is_read:
            read.add(name)
        else:
            assigned.setdefault(name, name in read and line > frame.f_lineno)
    return {name: assigned.get(name, False) for name in sorted(read)}


def _uses(code: CodeType, after: int) -> Iterator[tuple[bool, str, int]]:
    """Whether a variable is read, its name and its line. One instruction may use two."""
    for each in dis.get_instructions(code):
        if each.offset > after:
            names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
            line = (each.positions and each.positions.lineno) or 0
            for kind, name in zip(_VARIABLE.findall(each.opname), names, strict=False):
                yield kind == "LOAD", str(name), line
