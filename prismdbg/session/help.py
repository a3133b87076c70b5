"""What `help` answers. It needs no rank."""

from __future__ import annotations

from prismdbg.session.answers import Help
from prismdbg.session.breakpoint_check import names_help
from prismdbg.session.line import VERBS, Line, Verb, verb_of


def help_of(line: Line) -> Help:
    if not line.text:
        return Help(verbs=tuple(VERBS))
    verb = verb_of(line.text)
    more = names_help() if verb in (Verb.BREAK, Verb.TBREAK, Verb.CONDITION) else ""
    return Help(verbs=(verb,), more=more)
