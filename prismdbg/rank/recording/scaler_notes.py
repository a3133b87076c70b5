"""Notes what a program's gradient scalers do that no step mark says: that there is one, and which of several optimizers
it skipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class ScalerListener(Protocol):
    """`found`: there is a scaler. has_several: it steps more than one optimizer. `skipped`: one of these but the first,
    whose gradients are of `step`; `taken`: that optimizer took a step again. `optimizer`: its number, from 1.
    `has_collectives`: whether the present step has any so far."""

    def found(self) -> None: ...

    def has_several(self) -> None: ...

    def has_collectives(self) -> bool: ...

    def skipped(self, step: int, optimizer: int) -> None: ...

    def taken(self, optimizer: int) -> None: ...


class Nobody:
    """Listens where nothing is recorded."""

    def found(self) -> None:
        """Not noted."""

    def has_several(self) -> None:
        """Not noted."""

    def has_collectives(self) -> bool:
        return True

    def skipped(self, step: int, optimizer: int) -> None:
        """Not noted."""

    def taken(self, optimizer: int) -> None:
        """Not noted."""


class ScalerNotes:
    """Into the log. `stats`: of the recorder."""

    def __init__(self, note: Callable[..., None], stats: Callable[[], dict[str, Any]]) -> None:
        self._note = note
        self._stats = stats

    def found(self) -> None:
        self._note("scaler")

    def has_several(self) -> None:
        self._note("scaler", several=True)

    def has_collectives(self) -> bool:
        """Also where the recorder does not say: the program goes on, whatever its recorder does."""
        try:
            return bool(self._stats()["collective"])
        except Exception:
            return True

    def skipped(self, step: int, optimizer: int) -> None:
        self._note("skipped", step=step, optimizer=optimizer)

    def taken(self, optimizer: int) -> None:
        self._note("taken", optimizer=optimizer)
