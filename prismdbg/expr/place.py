"""Errors that point: the message, the expression, and a caret under the column."""

from __future__ import annotations

from prismdbg.errors import UsageError

_SHOWN = 60


def complaint(text: str, column: int, message: str, *, hint: str = "") -> UsageError:
    """What is wrong with `text` at `column` (from 0). A long text is cut around the place."""
    shown = "".join(c if c.isprintable() else "?" for c in text)
    start = max(0, column - _SHOWN // 2) if len(shown) > _SHOWN else 0
    part = shown[start : start + _SHOWN]
    return UsageError(f"{message}\n    {part}\n    {' ' * (column - start)}^", hint=hint)
