"""A framework's own call that ends a step, also if it calls no optimizer of torch: a loss scaler skips the step, or the
rank has nothing to train.

What a version of the framework lacks is left alone; its steps are then those of torch's optimizer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prismdbg.rank.recording.steps import COUNTER


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCall:
    """`method` of an object of the framework. optimizer: the first of torch's that it steps, None for none.
    has_scaler: whether it scales the loss. was_skipped: of the object and what the method returned."""

    method: str
    optimizer: Callable[[Any], Any]
    has_scaler: Callable[[Any], bool]
    was_skipped: Callable[[Any, Any], bool]

    def install(self, kind: Any) -> None:
        if self.method in vars(kind):
            self._watch_how_it_is_made(kind)
            self._count_calls(kind)

    def _watch_how_it_is_made(self, kind: Any) -> None:
        """It is known before the first step: NaN and Inf in the gradients of that one are overflows, too."""
        original = kind.__init__

        @functools.wraps(original)
        def init(self_: Any, *args: Any, **kwargs: Any) -> None:
            COUNTER.count_none_in(lambda: original(self_, *args, **kwargs))
            if _answer(self.has_scaler, self_):
                COUNTER.found_scaler()

        kind.__init__ = init

    def _count_calls(self, kind: Any) -> None:
        original = vars(kind)[self.method]

        @functools.wraps(original)
        def step(self_: Any, *args: Any, **kwargs: Any) -> Any:
            return COUNTER.count_call(
                _answer(self.optimizer, self_) or self_,
                lambda: original(self_, *args, **kwargs),
                lambda result: self._was_skipped(self_, result),
            )

        setattr(kind, self.method, step)

    def _was_skipped(self, stepped: Any, result: Any) -> bool:
        """Without a scaler nothing lowers the scale after a NaN: the next step has it again, and it is no overflow."""
        return bool(_answer(self.has_scaler, stepped) and _answer(self.was_skipped, stepped, result))


def _answer(question: Callable[..., Any], *about: Any) -> Any:
    """None where this version of the framework has not what is asked for: the program goes on."""
    try:
        return question(*about)
    except Exception:
        return None
