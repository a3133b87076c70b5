"""What is wrong with a line whatever the rank does: a broken expression, a breakpoint that cannot be hit."""

from __future__ import annotations

from collections.abc import Callable

from prismdbg.expr.parser import parse
from prismdbg.expr.template import parse_template
from prismdbg.session.breakpoint_check import check, check_value
from prismdbg.session.breakpoint_line import parse_breakpoint
from prismdbg.session.known import Known
from prismdbg.session.line import VERBS, Line, Takes


def check_line(line: Line, known: Known) -> None:
    """`UsageError`, as the line itself would end with it."""
    if line.text:
        _CHECKS.get(VERBS[line.verb].takes, _nothing)(line.text, known)


def _nothing(_text: str, _known: Known) -> None:
    """What it takes is known only where the rank stands."""


def _expression(text: str, _known: Known) -> None:
    parse(text)


def _template(text: str, _known: Known) -> None:
    parse_template(text)


_CHECKS: dict[Takes, Callable[[str, Known], None]] = {
    Takes.EXPRESSION: _expression,
    Takes.ORIGIN: _expression,
    Takes.CONDITION: _expression,
    Takes.WATCH: lambda text, known: check_value(parse(text), known),
    Takes.STOP: lambda text, known: check(parse_breakpoint(text), known),
    Takes.LOGPOINT: _template,
    Takes.EXPORT: lambda text, known: _expression(text.rpartition(" ")[0] or text, known),
}
