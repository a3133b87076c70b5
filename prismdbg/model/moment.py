"""A place in a rank's run: totally ordered, printable, pasteable."""

from __future__ import annotations

import re
from dataclasses import dataclass

from prismdbg.errors import UsageError

_NUMBER = "([0-9]{1,18})"  # ASCII, and never more than a machine word
_PATTERN = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}(?:\.{_NUMBER})?)?")


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """`step.collective.op`.

    step: optimizer steps completed (or the number given to `prismdbg.step`).
    collective: the collectives issued since that step began, counted from 1; 0 is before the first.
    op: outermost operators on the issuing thread since that collective, counted from 1; 0 is the collective itself.
    """

    step: int
    collective: int = 0
    op: int = 0

    def __str__(self) -> str:
        text = f"{self.step}.{self.collective}"
        return f"{text}.{self.op}" if self.op else text

    @classmethod
    def parse(cls, text: str) -> Moment:
        """`12`, `12.345` or `12.345.6`; anything else is a `UsageError`."""
        match = _PATTERN.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"{text[:60]!r} is not a moment",
                hint="write step.collective.op, for instance 12.345.6, 12.345 or 12",
            )
        return cls(*(int(part) if part else 0 for part in match.groups()))
