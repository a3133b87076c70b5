"""The text of a logpoint: `loss={loss} at {moment}`. An expression stands in braces; `{{` and `}}` are braces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from prismdbg.errors import UsageError
from prismdbg.expr.parser import Expression, parse
from prismdbg.expr.place import ExpressionError, complaint
from prismdbg.model.breakpoints import MAX_LOGGED

MAX_LENGTH = 1000
EXAMPLE = "write for instance: loss={loss} at {moment}"

_PART = re.compile(r"""\{\{|\}\}|\{((?:"[^"]*"|'[^']*'|[^{}"'])*)\}|[{}]""")
_FORMAT = re.compile(r"![rsa]|:[^\]]*$")


@dataclass(frozen=True, slots=True)
class Template:
    """`texts` has one part more than `expressions`: what stands before, between and after them."""

    texts: tuple[str, ...]
    expressions: tuple[Expression, ...]

    def filled(self, values: Sequence[str]) -> str:
        """values: as many as there are expressions."""
        between = zip(values, self.texts[1:], strict=True)
        return self.texts[0] + "".join(value + text for value, text in between)


def parse_template(text: str) -> Template:
    """`UsageError` with a caret at a brace without its other one, or under what is wrong in an expression."""
    if len(text) > MAX_LENGTH:
        raise UsageError(f"the text of a logpoint has at most {MAX_LENGTH} characters", hint="write a shorter one")
    texts, expressions, end = [""], [], 0
    for part in _PART.finditer(text):
        texts[-1] += text[end : part.start()]
        end = part.end()
        if part.group() in ("{{", "}}"):
            texts[-1] += part.group()[0]
        elif part.group(1) is None:
            raise complaint(text, part.start(), "this brace has no other one", hint=f"{EXAMPLE}; {{{{ is a brace")
        else:
            expressions.append(_parsed(text, part.start(1), part.group(1)))
            texts.append("")
    if len(expressions) > MAX_LOGGED:
        raise UsageError(f"the text of a logpoint has at most {MAX_LOGGED} expressions", hint="set a second one")
    texts[-1] += text[end:]
    return Template(tuple(texts), tuple(expressions))


def _parsed(text: str, begin: int, part: str) -> Expression:
    try:
        return parse(part.strip())
    except ExpressionError as error:
        column = begin + len(part) - len(part.lstrip()) + error.column
        hint = "write the expression alone: values have no format" if _FORMAT.search(part) else error.hint
        raise complaint(text, column, error.bare, hint=hint) from None
