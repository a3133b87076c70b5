"""Moments as programs give them: as text or as a `Moment`."""

from __future__ import annotations

from typing import overload

from prismdbg.model.moment import Moment


@overload
def moment_of(given: str | Moment) -> Moment: ...
@overload
def moment_of(given: str | Moment | None) -> Moment | None: ...
def moment_of(given: str | Moment | None) -> Moment | None:
    """Raises `UsageError` for a text that is no moment."""
    return Moment.parse(given) if isinstance(given, str) else given
