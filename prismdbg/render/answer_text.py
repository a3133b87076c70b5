"""A debugger's answers as lines of text."""

from __future__ import annotations

from prismdbg.model.plain_text import one_line
from prismdbg.model.plurals import counted
from prismdbg.render import stop_text
from prismdbg.render.console import columns, size
from prismdbg.render.value_text import number, value_text
from prismdbg.session import answers
from prismdbg.session.answers import Answer
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg.session.line import VERBS, Verb
from prismdbg.session.watches import Watched

TOP = 12
HELP_INDENT = 32


def answer_text(answer: Answer) -> str:
    """Empty for what is shown otherwise."""
    match answer:
        case answers.Value():
            return value_text(answer.value, only_stats=answer.only_stats)
        case answers.Stack():
            return "\n".join(filter(None, [answer.note, stop_text.where_text(answer.frames, answer.chosen)]))
        case answers.Source():
            return "\n".join(stop_text.source_lines(answer.source))
        case answers.Names():
            return stop_text.locals_text(answer.names)
        case answers.Peers():
            return stop_text.peers_text(answer.peers)
        case answers.Info():
            return _info(answer)
        case answers.BreakpointTable():
            return _stops(answer)
        case answers.BreakpointSet():
            return f"breakpoint {answer.stop.number}: {_stop(answer.stop)}" + (" is deleted" if answer.gone else "")
        case answers.WatchTable():
            return (
                "\n".join(watched_text(watched) for watched in answer.watched)
                or "no watch expressions: watch EXPRESSION"
            )
        case answers.CheckpointTable():
            return _checkpoints(answer)
        case answers.Wrote():
            return _wrote(answer)
        case answers.Allocated():
            return _allocated(answer)
        case answers.Originated():
            return origin_texts(answer)[0]
        case answers.Differs():
            return _differs(answer)
        case answers.Help():
            return "\n".join([*(_usage(verb) for verb in answer.verbs), *([answer.more] if answer.more else [])])
        case answers.Done():
            return answer.what
        case answers.Memory():
            return memory_text(answer)
        case _:
            return ""


def watched_text(watched: Watched) -> str:
    """One line and what belongs below it."""
    mark = "*" if watched.changed else " "
    if watched.error:
        text = watched.error.splitlines()[0]
    else:
        text = value_text(watched.value, brief=True) if watched.value is not None else "not known yet"
    return f"{mark}{watched.number}: {watched.text} = {text}"


def memory_text(answer: answers.Memory) -> str:
    from prismdbg.memory.curve import Curve, curve
    from prismdbg.memory.difference import Difference
    from prismdbg.memory.grouping import By, grouped
    from prismdbg.memory.live import Live
    from prismdbg.memory.peak import Peak
    from prismdbg.memory.trace_end import trace_end
    from prismdbg.render import memory_text as text  # numpy, only where it is asked for

    match answer.answer:
        case Live() as live:
            return text.live_text(live, answer.moment, grouped(live, By(answer.by)), top=TOP)
        case Peak() as peak:
            trace = peak.live.trace
            ends = trace_end(trace, stands=answer.moment)
            return text.peak_text(trace, peak, grouped(peak.live, By(answer.by)), ends, top=TOP)
        case Difference() as difference:
            return text.difference_text(difference, By(answer.by), TOP)
        case Curve() as drawn:
            return text.curve_text(curve(drawn.trace, text.curve_points()))
        case _:
            return "the trace has no allocation yet"


def _info(answer: answers.Info) -> str:
    if answer.finished is not None:
        return stop_text.finished_text(answer.finished)
    if answer.stop is None:
        compared = stop_text.tally_text(answer.tally) if answer.tally else "it does not say what was compared"
        return f"{answer.phase} after {answer.moment}: {compared}"
    return stop_text.info_text(answer.stop, answer.tally, answer.visited)


def _stop(stop: BreakpointSpec) -> str:
    notes = [stop.title]
    notes += ["once"] if stop.once else []
    notes += [f"logpoint: {stop.message}" if stop.message else "logpoint"] if stop.log_only else []
    notes += [f"ignores the next {counted(stop.ignore, 'hit')}"] if stop.ignore else []
    return ", ".join(notes)


def _stops(answer: answers.BreakpointTable) -> str:
    if not answer.stops:
        return "no breakpoints: break WHAT (help break)"
    rows = [[str(stop.number), str(answer.hits.get(stop.number, 0)), _stop(stop)] for stop in answer.stops]
    return columns(("breakpoint", "hits", "at"), rows, right=("breakpoint", "hits"))


def _checkpoints(answer: answers.CheckpointTable) -> str:
    rows = [
        [str(kept.number), str(kept.moment), size(kept.size_bytes) if kept.number else "", f"{kept.cost_s:.2f} s"]
        for kept in answer.checkpoints
    ]
    note = (
        "\ngoing back replays from the start moment, because no checkpoint can be taken here: "
        + one_line(answer.why_none)
        if answer.why_none
        else ""
    )
    return columns(("checkpoint", "moment", "size", "cost"), rows, right=("checkpoint", "size", "cost")) + note


def _wrote(answer: answers.Wrote) -> str:
    """The place asked about first: the rank stands elsewhere by now."""
    since = f"between {answer.after} and {answer.moment}" if answer.after is not None else f"before {answer.moment}"
    when = f"at {answer.moment}, by {answer.op}" if answer.op else since
    place = f", {stop_text.own_line(answer.frames)}" if answer.frames else ""
    return one_line(f"as of {answer.asked_at}, {answer.text} was last written {when}{place}")


def _allocated(answer: answers.Allocated) -> str:
    if answer.before:
        block = f"a block of {size(answer.size_bytes)}"
        return (
            f"as of {answer.asked_at}, {answer.text} is in {block} that is older than the trace: allocated before the "
            "start moment"
        )
    place = f" at {stop_text.own_line(answer.frames)}" if answer.frames else ""
    block = f"{size(answer.size_bytes)} that {answer.op} allocated at {answer.moment}"
    return one_line(f"as of {answer.asked_at}, {answer.text} is in {block}{place}")


def origin_texts(answer: answers.Originated) -> tuple[str, ...]:
    """A sentence, then shorter texts that keep where it is."""
    came, of = ("was produced by", "output of") if answer.born else ("was already in the inputs of", "input of")
    op = answer.op or "this collective"
    place = f" at {stop_text.own_line(answer.frames)}" if answer.frames else ""
    seen = "" if answer.seen_at == answer.moment else f"; first sent or received at {answer.seen_at}"
    texts = (
        f"the first {answer.what} {came} {op}, {answer.moment}{place}{seen}",
        f"the first {answer.what} {came} {op}, {answer.moment}{place}",
        f"first {answer.what}: {answer.moment}{place}, {of} {op}",
        f"first {answer.what}: {answer.moment}{place}",
    )
    return tuple(map(one_line, texts))


def _differs(answer: answers.Differs) -> str:
    if answer.equal:
        return f"{answer.text}: as recorded, to the last bit ({answer.elements} elements)"
    head = f"{answer.text}: {answer.differing} of {answer.elements} elements differ"
    head += f", by at most {number(answer.largest)}" if answer.largest is not None else ""
    return head + (f"\ndifference, now minus recorded:\n{value_text(answer.value)}" if answer.value else "")


def _usage(verb: Verb) -> str:
    usage = VERBS[verb]
    short = f" ({usage.short})" if usage.short else ""
    head = f"{verb} {usage.takes}".strip() + short
    if len(head) >= HELP_INDENT:
        return f"{head}\n{'':<{HELP_INDENT}}{usage.meaning}"
    return f"{head:<{HELP_INDENT}}{usage.meaning}"
