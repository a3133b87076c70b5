"""What is wrong with a line whatever the rank does: a broken expression, a breakpoint that cannot be hit."""

from __future__ import annotations

from collections.abc import Callable

from prismdbg.errors import UsageError
from prismdbg.expr.parser import parse
from prismdbg.expr.template import parse_template
from prismdbg.session.breakpoint_check import check, check_value
from prismdbg.session.breakpoint_line import parse_breakpoint, require_change
from prismdbg.session.known import Known
from prismdbg.session.line import VERBS, Line, Takes, Verb, verb_of

Names = Callable[[], Known]


def check_line(line: Line, known: Names) -> None:
    """`UsageError`, as the line itself would end with it. `known`: asked only where a line names something."""
    takes = VERBS[line.verb].takes
    if not line.text:
        return
    if line.verb in (Verb.CONDITION, Verb.WATCH):
        check_value(parse(line.text), known())
        if line.insists:
            require_change(line.text)
    elif takes in _EXPRESSIONS:
        parse(_EXPRESSIONS[takes](line.text))
    elif takes is Takes.LOGPOINT:
        for expression in parse_template(line.text).expressions:
            check_value(expression, known())
    elif takes is Takes.STOP:
        check(parse_breakpoint(line.text), known())
    elif takes is Takes.VERB:
        verb_of(line.text)


def _after_word(text: str) -> str:
    word, _, expression = text.partition(" ")
    if not expression.strip():
        raise UsageError(f"an expression is missing after {word}", hint="type for example: who wrote loss")
    return expression.strip()


def _before_file(text: str) -> str:
    expression, _, _ = text.rpartition(" ")
    if not expression:
        raise UsageError("export needs an expression and a file", hint="type for example: export out[0] out.npy")
    return expression


_EXPRESSIONS: dict[Takes, Callable[[str], str]] = {
    Takes.EXPRESSION: str,
    Takes.ORIGIN: str,
    Takes.WHO: _after_word,
    Takes.EXPORT: _before_file,
}
