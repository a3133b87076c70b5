"""One typed line into a verb and its argument. The table is what `help` and completion show."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment

MAX_LINE = 4000


class Verb(StrEnum):
    NEXT = "next"
    CONTINUE = "continue"
    UNTIL = "until"
    INFO = "info"
    WHERE = "where"
    UP = "up"
    DOWN = "down"
    LIST = "list"
    PRINT = "print"
    LOCALS = "locals"
    PEERS = "peers"
    HELP = "help"
    QUIT = "quit"


class Takes(StrEnum):
    NOTHING = ""
    NUMBER = "[N]"
    LINE = "[LINE]"
    MOMENT = "MOMENT"
    EXPRESSION = "EXPRESSION"
    VERB = "[VERB]"


@dataclass(frozen=True, slots=True)
class Usage:
    takes: Takes
    short: str
    meaning: str


VERBS: dict[Verb, Usage] = {
    Verb.NEXT: Usage(Takes.NUMBER, "n", "go on to the next collective, or the N-th from here"),
    Verb.CONTINUE: Usage(Takes.NOTHING, "c", "go on to the end, or to what is not as recorded"),
    Verb.UNTIL: Usage(Takes.MOMENT, "u", "go on to the first collective at or after a moment: 12.3 or 12"),
    Verb.INFO: Usage(Takes.NOTHING, "i", "this collective, and what was compared so far"),
    Verb.WHERE: Usage(Takes.NOTHING, "w", "the Python stack"),
    Verb.UP: Usage(Takes.NUMBER, "", "look from the caller's frame"),
    Verb.DOWN: Usage(Takes.NUMBER, "", "look from the called frame"),
    Verb.LIST: Usage(Takes.LINE, "l", "source around this line, or around LINE"),
    Verb.PRINT: Usage(Takes.EXPRESSION, "p", "a value: print out[0], print nan(model.head.weight)"),
    Verb.LOCALS: Usage(Takes.NOTHING, "", "names of this frame"),
    Verb.PEERS: Usage(Takes.NOTHING, "", "who takes part in this collective, and how each is played"),
    Verb.HELP: Usage(Takes.VERB, "h", "this list"),
    Verb.QUIT: Usage(Takes.NOTHING, "q", "end the replay"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`number` where one was given; `text` is what an expression or a verb is read from."""

    verb: Verb
    number: int | None = None
    moment: Moment | None = None
    text: str = ""


def parse_line(text: str) -> Line:
    """`UsageError` says what the verb takes. Verbs may be cut short where that is not ambiguous."""
    if len(text) > MAX_LINE:
        raise UsageError(f"a line has at most {MAX_LINE} characters")
    word, _, argument = text.strip().partition(" ")
    verb, argument = verb_of(word), argument.strip()
    takes = VERBS[verb].takes
    if takes is Takes.NOTHING and argument:
        raise UsageError(f"{verb} takes nothing after it", hint=f"write {verb} alone")
    if takes in (Takes.MOMENT, Takes.EXPRESSION) and not argument:
        raise UsageError(f"{verb} takes {takes}", hint=f"{verb}: {VERBS[verb].meaning}")
    if takes is Takes.MOMENT:
        return Line(verb=verb, moment=Moment.parse(argument))
    if takes in (Takes.NUMBER, Takes.LINE) and argument:
        return Line(verb=verb, number=_number(verb, argument))
    return Line(verb=verb, text=argument)


def verb_of(word: str) -> Verb:
    for verb, usage in VERBS.items():
        if word and word == usage.short:
            return verb
    found = [verb for verb in VERBS if word and verb.startswith(word)]
    if len(found) == 1 or word in found:
        return found[0]
    if found:
        raise UsageError(f"{word!r} may be {' or '.join(found)}")
    raise UsageError(f"there is no {word!r}", hint="help lists what there is")


def _number(verb: Verb, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) > 0):
        raise UsageError(f"{verb} takes a number from 1, not {text!r}")
    return int(text)
