"""Answers of a rank as lines for the console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prismdbg.model.collective import Frame
from prismdbg.session import notices
from prismdbg.session.frames import is_library
from prismdbg.session.line import VERBS, verb_of
from prismdbg.session.session import PARKED, Session
from prismdbg_tui import figures
from prismdbg_tui.value_drawing import Ink, draw
from prismdbg_tui.views import Json, SourceView, ValueView

_WHY = {
    "start": "before the first line that follows `import torch`",
    PARKED: "where it was captured; nothing can be looked at before it goes on",
    "end of the log": "the record ends here; whoever answers from now on is synthesized",
}
_PLAIN = Ink(name="", quiet="", bad="", bar="", width=76)


def stop_line(stop: notices.Stopped) -> str:
    if not stop.collective:
        return f"stopped at {stop.moment}: {_WHY.get(stop.reason, stop.reason)}"
    call = stop.collective
    tensors = call.get("inputs") or call.get("outputs") or []
    shown = ", ".join(map(str, tensors[:3])) + (f", ... ({len(tensors)} tensors)" if len(tensors) > 3 else "")
    line = f"stopped at {stop.moment} ({stop.reason}): {call['profiling_name']} on group {call['process_group']}"
    return f"{line}: {shown}" + (f"\n{_WHY[stop.reason]}" if stop.reason in _WHY else "")


def tally(counts: Json) -> str:
    parts = [f"{counts['compared']} collectives ({counts['fingerprints']} with what they send)"]
    if counts.get("object_notes"):
        parts.append(f"{counts['object_notes']} pickled objects that differ")
    parts.append(f"{counts['synthesized']} synthesized")
    if counts.get("missing"):
        parts.append(f"{counts['missing']} still to come")
    return ", ".join(parts)


def finished(end: notices.Finished) -> str:
    missing = end.tally.get("missing", 0)
    note = f"\n{missing} recorded collectives never came" if missing else ""
    return f"the program ended with {end.code} after {end.moment}: {tally({**end.tally, 'missing': 0})}{note}"


def info(session: Session, counts: Json) -> str:
    stop = session.stop
    if stop is None:
        return f"{session.phase} after {session.moment}: {tally(counts)}"
    rows = [("moment", stop.moment), ("stopped", stop.reason)]
    rows += [(k.replace("_", " "), v) for k, v in stop.collective.items() if v is not None and k not in ("frames",)]
    rows += [("compared", tally(counts)), ("stops so far", ", ".join(str(v.moment) for v in session.visited[-8:]))]
    return "\n".join(f"{name!s:<16}{_shown(value)}" for name, value in rows)


def notice(told: notices.Notice) -> str:
    match told:
        case notices.EndOfLog():
            return f"everything recorded was replayed: {tally(told.tally)}"
        case notices.StateCompared(equal=True):
            return f"{told.moment}: the parameters equal the recorded ones ({told.actual})"
        case notices.StateCompared():
            return f"{told.moment}: the parameters differ: {told.expected} recorded, {told.actual} now"
        case notices.ProgramRaised():
            return "".join(told.traceback).rstrip() or f"{told.kind}: {told.text}"
        case notices.Said():
            return told.text
        case _:
            return str(told)


def is_bad(told: notices.Notice) -> bool:
    return isinstance(told, notices.ProgramRaised) or (isinstance(told, notices.StateCompared) and not told.equal)


def stack(frames: Sequence[Frame], chosen: int) -> str:
    lines = [
        f"{'->' if number == chosen else '  '} {number:>3}  {frames[number]}"
        for number in reversed(range(len(frames)))
        if not is_library(frames[number]) or number in (chosen, 0)
    ]
    return "\n".join(lines) or "no Python frame of the program here"


def source(view: SourceView) -> str:
    if not view.lines:
        return f"the source of {view.filename or 'this place'} is not there"
    numbered = enumerate(view.lines, view.first)
    rows = [f"{'->' if number == view.line else '  '} {number:>5}  {text}".rstrip() for number, text in numbered]
    return "\n".join([f"{view.filename}:{view.line} in {view.function}", *rows])


def names(found: Sequence[Json]) -> str:
    return "\n".join(f"{name['name']:<16}  {name['text']}" for name in found) or "no names here"


def peers(answer: Json) -> str:
    rows = [f"  rank {m['rank']:<5} {m['role']}" for m in answer["members"]]
    return "\n".join([f"group {answer['title']} of {answer['size']}", *rows])


def value(answer: Json) -> str:
    return draw("", answer, _PLAIN).plain.strip()


def opened(title: str, answer: Json) -> list[ValueView]:
    """The tensors of a list one by one: each has statistics of its own."""
    if answer.get("kind") != "sequence" or not answer["items"]:
        return [ValueView(title, answer)] if answer.get("kind") != "sequence" else []
    return [ValueView(f"{title}[{number}]", item) for number, item in enumerate(answer["items"])]


def help_text(word: str) -> str:
    lines = []
    for verb in [verb_of(word)] if word else list(VERBS):
        usage = VERBS[verb]
        short = f" ({usage.short})" if usage.short else ""
        lines.append(f"{f'{verb} {usage.takes}'.strip() + short:<24}{usage.meaning}")
    return "\n".join([*lines, "" if word else "a moment alone, like 12.3, moves the cursor there"]).rstrip()


def _shown(value: Any) -> str:
    return figures.cut(", ".join(map(str, value)) if isinstance(value, list) else str(value), 200)
