"""Errors that point: the message, the expression, and a caret under the column."""

from __future__ import annotations

from prismdbg.errors import UsageError

_SHOWN = 60


class ExpressionError(UsageError):
    """Shown it is several lines. `bare` and `column` are for those who show the place in their own way."""

    def __init__(self, message: str, *, hint: str = "", bare: str = "", column: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.bare = bare or message
        self.column = column

    def again(self) -> ExpressionError:
        """The same error without a traceback."""
        return ExpressionError(str(self), hint=self.hint, bare=self.bare, column=self.column)


def complaint(text: str, column: int, message: str, *, hint: str = "") -> ExpressionError:
    """What is wrong with `text` at `column` (from 0). A long text is cut around the place."""
    shown = "".join(c if c.isprintable() else "?" for c in text)
    start = max(0, column - _SHOWN // 2) if len(shown) > _SHOWN else 0
    part = shown[start : start + _SHOWN]
    pointing = f"{message}\n    {part}\n    {' ' * (column - start)}^"
    return ExpressionError(pointing, hint=hint, bare=message, column=column)
