"""One typed line into a verb and its argument. The table is what `help`, completion and palettes show."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from prismdbg.errors import UsageError, quoted, suggestion
from prismdbg.model.moment import Moment

MAX_LINE = 4000
MAX_DIGITS = 9


class Verb(StrEnum):
    NEXT = "next"
    REVERSE_NEXT = "reverse-next"
    STEP = "step"
    REVERSE_STEP = "reverse-step"
    FINISH = "finish"
    REVERSE_FINISH = "reverse-finish"
    CONTINUE = "continue"
    REVERSE_CONTINUE = "reverse-continue"
    UNTIL = "until"
    NEXT_STEP = "next-step"
    GOTO = "goto"
    BACK = "back"
    FORWARD = "forward"
    BREAK = "break"
    TBREAK = "tbreak"
    CONDITION = "condition"
    IGNORE = "ignore"
    LOG_ONLY = "logpoint"
    DELETE = "delete"
    STOPS = "breakpoints"
    WATCH = "watch"
    UNWATCH = "unwatch"
    WHO = "who"
    ORIGIN = "origin"
    CHECKPOINT = "checkpoint"
    CHECKPOINTS = "checkpoints"
    RESTART = "restart"
    INFO = "info"
    WHERE = "where"
    UP = "up"
    DOWN = "down"
    LIST = "list"
    PRINT = "print"
    STATS = "stats"
    DIFF = "diff"
    EXPORT = "export"
    LOCALS = "locals"
    PEERS = "peers"
    MEMORY = "memory"
    TRACE = "trace"
    HELP = "help"
    QUIT = "quit"


class Takes(StrEnum):
    NOTHING = ""
    NUMBER = "[N]"
    LINE = "[LINE]"
    MOMENT = "MOMENT"
    EXPRESSION = "EXPRESSION"
    VERB = "[VERB]"
    STOP = "WHAT [if CONDITION]"
    CONDITION = "N [CONDITION]"
    COUNT = "N COUNT"
    ONE = "N"
    LOGPOINT = "N [TEXT]"
    WATCH = "[EXPRESSION]"
    WHO = "wrote|allocated EXPRESSION"
    ORIGIN = "[EXPRESSION]"
    WHERE = "[from nan]"
    MEMORY = "[peak | diff M1 M2 | export FILE | ...]"
    SWITCH = "[on | off]"
    EXPORT = "EXPRESSION FILE"


@dataclass(frozen=True, slots=True)
class Usage:
    takes: Takes
    short: str
    meaning: str


VERBS: dict[Verb, Usage] = {
    Verb.NEXT: Usage(Takes.NUMBER, "n", "run to the next collective, or to the N-th from here"),
    Verb.REVERSE_NEXT: Usage(Takes.NUMBER, "rn", "go back to the previous collective, or to the N-th before here"),
    Verb.STEP: Usage(Takes.NUMBER, "s", "run to the next event: an operator, an allocation or a free"),
    Verb.REVERSE_STEP: Usage(Takes.NUMBER, "rs", "go back by one event"),
    Verb.FINISH: Usage(Takes.NOTHING, "f", "run until this module call or training step has ended"),
    Verb.REVERSE_FINISH: Usage(Takes.NOTHING, "rf", "go back to before this module call or training step began"),
    Verb.CONTINUE: Usage(Takes.NOTHING, "c", "run to a breakpoint, to the end, or to the first divergence"),
    Verb.REVERSE_CONTINUE: Usage(Takes.NOTHING, "rc", "go back to the previous breakpoint hit, or to the start moment"),
    Verb.UNTIL: Usage(Takes.MOMENT, "u", "run to a moment (12.3 or 12), unless a breakpoint is hit first"),
    Verb.NEXT_STEP: Usage(Takes.NUMBER, "ns", "run to the first collective of the next step, or of the N-th"),
    Verb.GOTO: Usage(Takes.MOMENT, "g", "go to a moment, forwards or backwards: 12.3 or 12.3.6; ignores breakpoints"),
    Verb.BACK: Usage(Takes.NUMBER, "", "go to the previous location"),
    Verb.FORWARD: Usage(Takes.NUMBER, "", "undo `back`: return to the location that you left with it"),
    Verb.BREAK: Usage(
        Takes.STOP,
        "b",
        "set a breakpoint: OP, on GROUP, #SEQ, FILE:LINE, in MODULE, exception, nan, divergence, "
        "peer RANK (point-to-point only), allocation, change EXPRESSION",
    ),
    Verb.TBREAK: Usage(Takes.STOP, "tb", "set a breakpoint that is deleted at its first hit"),
    Verb.CONDITION: Usage(Takes.CONDITION, "cond", "set the condition of breakpoint N; without CONDITION, remove it"),
    Verb.IGNORE: Usage(Takes.COUNT, "", "ignore the next COUNT hits of breakpoint N"),
    Verb.LOG_ONLY: Usage(
        Takes.LOGPOINT,
        "",
        "make breakpoint N a logpoint, which prints and continues, or a breakpoint again. TEXT is what it prints, with "
        "values in braces: logpoint 1 loss={loss}",
    ),
    Verb.DELETE: Usage(Takes.NUMBER, "del", "delete breakpoint N, or all"),
    Verb.STOPS: Usage(Takes.NOTHING, "", "list the breakpoints with their hits"),
    Verb.WATCH: Usage(
        Takes.WATCH,
        "",
        "show a value at every stop; without EXPRESSION, list these values. `watch! EXPRESSION` also stops when the "
        "value changes, as gdb's watch does",
    ),
    Verb.UNWATCH: Usage(Takes.ONE, "", "delete watch expression N"),
    Verb.WHO: Usage(Takes.WHO, "", "go back to where a tensor was last written, or to where its memory was allocated"),
    Verb.ORIGIN: Usage(
        Takes.ORIGIN,
        "",
        "go to the origin of the first NaN or infinity: in a value, up to here; without EXPRESSION in all that is sent "
        "and received, up to here or to the recorded incident",
    ),
    Verb.CHECKPOINT: Usage(Takes.NOTHING, "m", "save a checkpoint of the rank"),
    Verb.CHECKPOINTS: Usage(Takes.NOTHING, "", "list the checkpoints with moment, size and cost"),
    Verb.RESTART: Usage(Takes.NUMBER, "", "go to checkpoint N or to the start moment; also after the rank is lost"),
    Verb.INFO: Usage(Takes.NOTHING, "i", "show this collective, and what was compared so far"),
    Verb.WHERE: Usage(
        Takes.WHERE, "w", "show the Python stack (also bt, stack); `where from nan` is the same as `origin`"
    ),
    Verb.UP: Usage(Takes.NUMBER, "", "select the caller's frame"),
    Verb.DOWN: Usage(Takes.NUMBER, "d", "select the called frame"),
    Verb.LIST: Usage(Takes.LINE, "l", "show the source around this line, or around LINE"),
    Verb.PRINT: Usage(Takes.EXPRESSION, "p", "show a value: print out[0][3:8], print nan(model.head.weight)"),
    Verb.STATS: Usage(Takes.EXPRESSION, "", "show statistics and a histogram of a tensor, without its values"),
    Verb.DIFF: Usage(Takes.EXPRESSION, "", "compare a tensor of this collective with the recording: diff out[0]"),
    Verb.EXPORT: Usage(
        Takes.EXPORT,
        "",
        "write a tensor into a file, .npy, .pt or .safetensors: export out[0] out.npy; or the timeline, .svg or .csv: "
        "export timeline run.svg",
    ),
    Verb.LOCALS: Usage(Takes.NOTHING, "", "show the names of this frame"),
    Verb.PEERS: Usage(
        Takes.NOTHING,
        "",
        "show the ranks of this collective: whether each answer is recorded or synthesized, and when the rank arrived",
    ),
    Verb.MEMORY: Usage(
        Takes.MEMORY, "mem", "show live memory here, its peak or a difference, or write a snapshot for memory_viz"
    ),
    Verb.TRACE: Usage(Takes.SWITCH, "", "start or stop tracing operators, allocations and frees between collectives"),
    Verb.HELP: Usage(Takes.VERB, "h", "show this list, or explain one command"),
    Verb.QUIT: Usage(Takes.NOTHING, "q", "end the replay"),
}

OTHER_NAMES = {  # of other debuggers, and of earlier versions
    "bt": Verb.WHERE,
    "stack": Verb.WHERE,
    "stops": Verb.STOPS,
    "log-only": Verb.LOG_ONLY,
}

_NEEDED = (
    Takes.MOMENT, Takes.EXPRESSION, Takes.STOP, Takes.CONDITION, Takes.COUNT, Takes.ONE, Takes.WHO,
    Takes.EXPORT, Takes.LOGPOINT,
)  # fmt: skip
_NUMBERS = (Takes.NUMBER, Takes.LINE, Takes.ONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`number` where one was given; `text` is what an expression or a verb is read from.

    insists: the verb was typed with an exclamation mark: `continue!`.
    """

    verb: Verb
    number: int | None = None
    moment: Moment | None = None
    text: str = ""
    insists: bool = False


def parse_line(text: str) -> Line:
    """`UsageError` says what the verb takes. Verbs may be cut short where that is not ambiguous; a bare moment is
    where to go."""
    if len(text) > MAX_LINE:
        raise UsageError(f"a line has at most {MAX_LINE} characters", hint="write a shorter line, or several")
    word, _, argument = text.strip().partition(" ")
    if word[:1].isascii() and word[:1].isdigit() and not argument:
        return Line(verb=Verb.GOTO, moment=Moment.parse(word))
    insists = len(word) > 1 and word.endswith("!")
    verb, argument = verb_of(word.removesuffix("!") if insists else word), argument.strip()
    takes = VERBS[verb].takes
    if takes is Takes.NOTHING and argument:
        raise UsageError(f"{verb} takes no arguments", hint=f"write {verb} without arguments")
    if takes in _NEEDED and not argument:
        raise UsageError(f"{verb} needs {takes}", hint=f"type `{verb} {takes}` to {VERBS[verb].meaning}")
    if takes is Takes.MOMENT:
        return Line(verb=verb, moment=Moment.parse(argument), insists=insists)
    if takes in (Takes.CONDITION, Takes.COUNT, Takes.LOGPOINT):
        return _numbered(verb, argument, insists)
    if takes in _NUMBERS and argument:
        return Line(verb=verb, number=_number(verb, argument), insists=insists)
    return Line(verb=verb, text=argument, insists=insists)


def verb_of(word: str) -> Verb:
    if word in OTHER_NAMES:
        return OTHER_NAMES[word]
    for verb, usage in VERBS.items():
        if word and word == usage.short:
            return verb
    found = [verb for verb in VERBS if word and verb.startswith(word)]
    if word in found:
        return Verb(word)
    first = found[0] if found else None
    if first is not None and all(verb.startswith(first) for verb in found):
        return first
    if found:
        raise UsageError(f"{quoted(word)} is ambiguous: {' or '.join(found)}", hint="type more letters")
    raise UsageError(
        f"unknown command {quoted(word)}{suggestion(word, VERBS)}", hint="type `help` to list all commands"
    )


def _numbered(verb: Verb, argument: str, insists: bool) -> Line:
    """`N` and what follows it."""
    first, _, rest = argument.partition(" ")
    number = _number(verb, first)
    rest = rest.strip()
    is_count = rest.isascii() and rest.isdigit() and len(rest) <= MAX_DIGITS
    if VERBS[verb].takes is Takes.COUNT and not is_count:
        raise UsageError(f"{verb} needs {Takes.COUNT}", hint=f"type for example: {verb} 1 10")
    return Line(verb=verb, number=number, text=rest, insists=insists)


def _number(verb: Verb, text: str) -> int:
    least = 0 if verb is Verb.RESTART else 1
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS and int(text) >= least):
        raise UsageError(
            f"{verb} takes a number from {least} to {10**MAX_DIGITS - 1}, not {quoted(text)}",
            hint=f"type for example: {verb} 2",
        )
    return int(text)
