"""Where in a script something stands, and errors that point there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prismdbg.errors import UsageError
from prismdbg.expr.place import ExpressionError

_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Place:
    """A character of a file; `line` and `column` count from 0. `text` is the whole line."""

    file: str
    line: int
    column: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line + 1}:{self.column + 1}"

    def behind(self, characters: int) -> Place:
        return Place(self.file, self.line, self.column + characters, self.text)

    def guard(self, check: Callable[..., None], *arguments: object) -> None:
        """What `check` complains of, it complains of here."""
        try:
            check(*arguments)
        except ExpressionError as error:  # it has a caret of its own
            raise UsageError(f"{self}: {error}", hint=error.hint) from None
        except UsageError as error:
            raise self.complaint(str(error), hint=error.hint) from None

    def complaint(self, message: str, *, hint: str = "") -> UsageError:
        """`checks.yaml:7:11: message`, the line, and a caret."""
        start = max(0, self.column - _SHOWN // 2) if len(self.text) > _SHOWN else 0
        shown = "".join(c if c.isprintable() else " " for c in self.text[start : start + _SHOWN])
        pointer = f"\n    {shown}\n    {' ' * (self.column - start)}^" if shown.strip() else ""
        return UsageError(f"{self}: {message}{pointer}", hint=hint)
