"""The names that an expression sees in a rank: the event's own, then the program's, frame by frame outwards."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from itertools import zip_longest
from types import FrameType
from typing import Any

import torch

from prismdbg.errors import UsageError
from prismdbg.expr.evaluator import Environment
from prismdbg.rank.measures import FUNCTIONS
from prismdbg.rank.surroundings import locals_of, own_frames
from prismdbg.rank.tensor_parts import local

MAX_ELEMENTS = 1 << 28


def environment(lookup: Callable[[str], Any]) -> Environment:
    return Environment(lookup=lookup, functions=FUNCTIONS, operand=local, admit=admit)


def environment_of(own: Callable[[str], Any], frame: FrameType | None) -> Environment:
    """`own` raises `KeyError` for what is not the event's; the program's frames are looked at only then. `local.op` is
    the program's `op`."""

    def lookup(name: str) -> Any:
        try:
            return own(name)
        except KeyError:
            return Program(lambda other: in_frames(other, frame)) if name == "local" else in_frames(name, frame)

    return environment(lookup)


class Program:
    """`local`: what the program calls by a name, whatever the event calls by it."""

    def __init__(self, lookup: Callable[[str], Any]) -> None:
        self._lookup = lookup

    def __getattr__(self, name: str) -> Any:
        try:
            return self._lookup(name)
        except KeyError:
            raise AttributeError(f"the program has no {name!r} here") from None


def in_frames(name: str, frame: FrameType | None) -> Any:
    """A local of the innermost of the program's frames that has one of this name, else a global of one of them."""
    known = list(own_frames(frame))
    for found in known:
        code = found.f_code
        if code.co_flags & inspect.CO_OPTIMIZED and name not in (
            *code.co_varnames,
            *code.co_cellvars,
            *code.co_freevars,
        ):
            continue
        names = locals_of(found)
        if name in names:
            return names[name]
    for found in known:
        if name in found.f_globals:
            return found.f_globals[name]
    raise KeyError(name, "the event's names and those of the program's own frames are known")


def admit(left: Any, right: Any) -> None:
    """Refuses what would need far more memory than its operands: a product of a row and a column, say."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        elements = _broadcast_elements(left, right)
        if elements > max(MAX_ELEMENTS, left.numel(), right.numel()):
            raise UsageError(f"the result would have {elements} elements", hint="index the operands first")


def _broadcast_elements(left: torch.Tensor, right: torch.Tensor) -> int:
    """Where the shapes do not fit together, torch says so itself. (`torch.broadcast_shapes` would import sympy.)"""
    sizes = zip_longest(reversed(left.shape), reversed(right.shape), fillvalue=1)
    return math.prod(max(a, b) if a and b else 0 for a, b in sizes)
