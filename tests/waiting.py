"""Waits for a condition, with a bound and a name; tests never sleep for a guessed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_PAUSE_S = 0.01


def wait_for(condition: Callable[[], T], bound_s: float, what: str) -> T:
    """The first true value of `condition`. Fails, saying what it waited for, when the bound is reached."""
    end = time.monotonic() + bound_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {bound_s} s for {what}")
        time.sleep(_PAUSE_S)
    return value
