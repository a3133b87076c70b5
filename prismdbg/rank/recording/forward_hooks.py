"""Hooks before the forward passes of modules, which the program may copy, pickle or compile while they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch

from prismdbg.rank.program.not_compiled import passed_over


class ForwardHooks:
    """Calls `begun` with the module before each forward pass of one of them, until they are removed."""

    def __init__(self, modules: Iterable[torch.nn.Module], begun: Callable[[torch.nn.Module], None]) -> None:
        self._begun: Callable[[torch.nn.Module], None] = begun
        self._handles = [module.register_forward_pre_hook(self, prepend=True) for module in modules]

    @passed_over
    def __call__(self, module: torch.nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling():  # as a part of another module: it is in no graph
            return
        if self._handles:
            self._begun(module)

    def __reduce__(self) -> tuple[Any, ...]:
        """In a copy of a module there is something that does nothing, also where prismdbg cannot be imported."""
        return getattr, (nullcontext(), "__exit__")

    def remove(self) -> None:
        """And lets go of `begun`: it may hold what holds this, and a program may collect no such garbage."""
        while self._handles:
            self._handles.pop().remove()
        self._begun = _nothing


def _nothing(module: torch.nn.Module) -> None:
    """Where nothing waits for a forward pass."""
