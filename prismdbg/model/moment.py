"""A place in a rank's run: totally ordered, printable, pasteable."""

from __future__ import annotations

import re
from dataclasses import dataclass

from prismdbg.errors import UsageError

_NUMBER = "([0-9]{1,18})"  # ASCII, and never more than a machine word
_LAST_OP = 10**18 - 1  # as `_NUMBER` has it
_PATTERN = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}(?:\.{_NUMBER})?)?")


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """`step.collective.op`.

    step: optimizer steps completed (or the number given to `prismdbg.step`).
    collective: the collectives issued since that step began, counted from 1; 0 is before the first.
    op: outermost operators on the issuing thread since that collective, counted from 1; 0 is the collective itself.

    An exception and the program's end lie behind all operators of their moment. Where places are ordered, they have ops
    that no operator has (`behind`, `end`), which a rank takes as it takes any other.
    """

    step: int
    collective: int = 0
    op: int = 0

    def __str__(self) -> str:
        text = f"{self.step}.{self.collective}"
        return f"{text}.{self.op}" if self.op else text

    @property
    def behind(self) -> Moment:
        """The place of an exception that is told with this moment."""
        return Moment(self.step, self.collective, _LAST_OP - 1)

    @property
    def end(self) -> Moment:
        """The place of a program's end that is told with this moment, also behind an exception."""
        return Moment(self.step, self.collective, _LAST_OP)

    @property
    def is_behind(self) -> bool:
        return self.op >= _LAST_OP - 1

    @property
    def is_between(self) -> bool:
        """At an operator."""
        return 0 < self.op < _LAST_OP - 1

    @property
    def told(self) -> Moment:
        """The moment that a place is told with."""
        return Moment(self.step, self.collective) if self.is_behind else self

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
