"""The objects of a class that live, known from the calls that make them."""

from __future__ import annotations

import functools
import weakref
from typing import Any


class Instances:
    """What the program has frozen (`gc.freeze`) is in no list of objects."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[Any]] = []  # no set: a class of the program's may refuse to be hashed

    def watch(self, kind: Any) -> None:
        """From now on."""
        original = kind.__init__

        @functools.wraps(original)
        def made(instance: Any, *args: Any, **named: Any) -> None:
            original(instance, *args, **named)
            self._made.append(weakref.ref(instance))

        kind.__init__ = made

    def living(self) -> list[Any]:
        return [instance for made in self._made if (instance := made()) is not None]
