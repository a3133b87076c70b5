"""What clients ask of a stopped thread: the value of an expression, the names of a frame, lines of its source."""

from __future__ import annotations

import inspect
import linecache
import math
import sys
from collections.abc import Mapping
from itertools import zip_longest
from types import FrameType, SimpleNamespace
from typing import Any

import torch

from prismdbg.errors import PrismError, UsageError
from prismdbg.expr.evaluator import Environment, evaluate
from prismdbg.expr.parser import parse
from prismdbg.rank.gate import Stop
from prismdbg.rank.measures import FUNCTIONS
from prismdbg.rank.quiet import quiet
from prismdbg.rank.rendering import render, short, type_name
from prismdbg.rank.tensor_parts import local

MAX_LOCALS = 200
MAX_LINES = 400
MAX_LINE = 400
MAX_ELEMENTS = 1 << 28


def evaluate_at(stop: Stop, text: str, frame: int = 0) -> dict[str, Any]:
    """The value of `text` as JSON. Names: the stop's own (input, out, op, ...), `local`, then the frame's."""
    outcome = _attempt(stop, text, frame)
    if isinstance(outcome, PrismError):  # raised here, so that its traceback holds no value of the program
        raise outcome
    return outcome


def _attempt(stop: Stop, text: str, frame: int) -> dict[str, Any] | PrismError:
    try:
        expression = parse(text)
        names = Names(stop, frame_at(stop, frame))
        environment = Environment(lookup=names.lookup, functions=FUNCTIONS, operand=local, admit=_admit)
        with quiet():
            value = render(evaluate(expression, environment))
        hidden = sorted(name for name in expression.names if name in stop.names and name in names.locals)
        return {**value, "hidden": hidden} if hidden else value
    except PrismError as error:
        return type(error)(str(error), hint=error.hint)
    except Exception as error:
        return UsageError(f"{type(error).__name__}: {str(error)[:300]}")


class Names:
    """Where an expression's names are looked up: the stop, then the frame's locals, then its globals."""

    def __init__(self, stop: Stop, frame: FrameType | None) -> None:
        self._own = stop.names
        self.locals = locals_of(frame)
        self._globals: Mapping[str, Any] = frame.f_globals if frame is not None else {}

    def lookup(self, name: str) -> Any:
        for names in (self._own, self.locals, self._globals):
            if name in names:
                return names[name]
        if name == "local":
            return SimpleNamespace(**self.locals)
        raise KeyError(name, self._hint())

    def _hint(self) -> str:
        known = [*self._own, *(n for n in self.locals if not n.startswith("_"))][:30]
        return f"names here: {' '.join(known)}" if known else "nothing is known yet: go on to a collective"


def locals_of(frame: FrameType | None) -> dict[str, Any]:
    """A copy. Reading a function's locals makes Python keep all of them in a dict of the frame: that is undone,
    or a tensor that the program drops would live on. A dict that the program itself holds is left alone."""
    if frame is None:
        return {}
    snapshot = frame.f_locals
    found = dict(snapshot)
    held_by_frame_only = 3  # the frame, the name `snapshot`, the argument of getrefcount
    is_snapshot = bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED) and isinstance(snapshot, dict)
    if is_snapshot and sys.getrefcount(snapshot) <= held_by_frame_only:
        snapshot.clear()
    return found


def frame_at(stop: Stop, number: int) -> FrameType | None:
    """Frame `number` outwards from the innermost one, which is 0."""
    frame = stop.frame
    if number < 0:
        raise UsageError("frames are counted from 0, the innermost")
    for _ in range(number):
        frame = frame.f_back if frame is not None else None
    if frame is None and number:
        raise UsageError(f"there is no frame {number}", hint="`where` lists the frames")
    return frame


def locals_at(stop: Stop, number: int) -> list[dict[str, str]]:
    """Names of the stop and of the frame, with what they are in one line each."""
    with quiet():
        names = locals_of(frame_at(stop, number))
        listed = [("stop", name, value) for name, value in stop.names.items()]
        listed += [("local", name, value) for name, value in names.items() if not name.startswith("__")]
        return [
            {"from": origin, "name": name, "type": type_name(value), "text": short(value)}
            for origin, name, value in listed[:MAX_LOCALS]
        ]


def source_at(stop: Stop, number: int, around: int, line: int | None = None) -> dict[str, Any]:
    """`around` lines before and after `line` (else where the frame stands), as the rank's own files have them."""
    frame = frame_at(stop, number)
    if frame is None:
        return {"filename": "", "line": 0, "first": 0, "lines": []}
    filename, at = frame.f_code.co_filename, line if line is not None else frame.f_lineno
    lines = linecache.getlines(filename, frame.f_globals)
    first = max(1, at - around)
    last = min(len(lines), at + around, first + MAX_LINES)
    return {
        "filename": filename,
        "function": frame.f_code.co_qualname,
        "line": frame.f_lineno,
        "first": first,
        "lines": [text.rstrip("\n")[:MAX_LINE] for text in lines[first - 1 : last]],
    }


def _admit(left: Any, right: Any) -> None:
    """Refuses what would need far more memory than its operands: a product of a row and a column, say."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        elements = _broadcast_elements(left, right)
        if elements > max(MAX_ELEMENTS, left.numel(), right.numel()):
            raise UsageError(f"the result would have {elements} elements", hint="index the operands first")


def _broadcast_elements(left: torch.Tensor, right: torch.Tensor) -> int:
    """Where the shapes do not fit together, torch says so itself. (`torch.broadcast_shapes` would import sympy.)"""
    sizes = zip_longest(reversed(left.shape), reversed(right.shape), fillvalue=1)
    return math.prod(max(a, b) if a and b else 0 for a, b in sizes)
