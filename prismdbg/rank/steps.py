"""Counts optimizer steps: the first optimizer seen defines the step, also where a gradient scaler skips it."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from prismdbg.capsule.log_format import StepSource

Listener = Callable[[int, StepSource], None]


class StepCounter:
    """Calls its listeners with the step that begins. Marked by hand once, it counts no optimizer any more."""

    def __init__(self) -> None:
        self.step = 0
        self.optimizer: weakref.ref[Any] | None = None
        self._by_hand = False
        self._listeners: list[Listener] = []
        self._in_scaler = False
        self._stepped = False

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def install(self) -> None:
        register_optimizer_step_post_hook(self._after_optimizer)
        self._wrap_scaler()

    def mark(self, number: int) -> None:
        if number < 0:
            raise ValueError(f"prismdbg.step({number}): a step cannot be negative")
        self._by_hand = True
        self._begin(number, StepSource.MANUAL)

    def _after_optimizer(self, optimizer: Any, *_: Any) -> None:
        if self._is_the_first(optimizer):
            self._stepped = True
            if not self._in_scaler:
                self._count(StepSource.OPTIMIZER)

    def _is_the_first(self, optimizer: Any) -> bool:
        known = self.optimizer() if self.optimizer is not None else None
        if known is None:
            self.optimizer = weakref.ref(optimizer)
            return True
        return known is optimizer

    def _wrap_scaler(self) -> None:
        original = torch.amp.GradScaler.step

        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            first = self._is_the_first(optimizer)
            self._in_scaler, self._stepped = first, False
            try:
                result = original(scaler, optimizer, *args, **kwargs)
            finally:
                self._in_scaler = False
            if first:
                self._count(StepSource.OPTIMIZER if self._stepped else StepSource.SKIPPED_BY_SCALER)
            return result

        torch.amp.GradScaler.step = step

    def _count(self, source: StepSource) -> None:
        if not self._by_hand:
            self._begin(self.step + 1, source)

    def _begin(self, step: int, source: StepSource) -> None:
        self.step = step
        for listener in self._listeners:
            listener(step, source)


COUNTER = StepCounter()


def mark(number: int) -> None:
    """What `prismdbg.step(n)` calls."""
    COUNTER.mark(number)
