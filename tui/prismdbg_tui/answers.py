"""Answers of a rank as lines for the console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prismdbg.model.collective import Frame
from prismdbg.session import answers as told
from prismdbg.session import notices
from prismdbg.session.frames import is_library, own_frame
from prismdbg.session.line import VERBS, Verb, verb_of
from prismdbg.session.session import PARKED
from prismdbg.session.stops import StopSpec
from prismdbg.session.watches import Watched
from prismdbg_tui import figures
from prismdbg_tui.value_drawing import Ink, draw, draw_difference, short
from prismdbg_tui.views import Json, ValueView

_WHY = {
    "start": "before the first line that follows `import torch`",
    PARKED: "where it was captured; nothing can be looked at before it goes on",
    "end of the log": "the record ends here; whoever answers from now on is synthesized",
}
_PLAIN = Ink(name="", quiet="", bad="", good="", bar="", width=76)


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


def info(found: told.Info) -> str:
    stop = found.stop
    if stop is None:
        return f"{found.phase} after {found.moment}: {tally(found.tally)}"
    rows: list[tuple[str, Any]] = [("moment", stop.moment), ("stopped", stop.reason)]
    rows += [(k.replace("_", " "), v) for k, v in stop.collective.items() if v is not None and k not in ("frames",)]
    rows += [("compared", tally(found.tally)), ("looked at", ", ".join(str(moment) for moment in found.visited[-8:]))]
    return "\n".join(f"{name!s:<16}{_shown(value)}" for name, value in rows)


def progress(doing: notices.Progress) -> str:
    """`returning to 12.3`, `running, at 12.3`."""
    return doing.text if str(doing.moment) in doing.text else f"{doing.text}, at {doing.moment}"


def notice(found: notices.Notice) -> str:
    match found:
        case notices.EndOfLog():
            return f"everything recorded was replayed: {tally(found.tally)}"
        case notices.StateCompared(equal=True):
            return f"{found.moment}: the parameters equal the recorded ones ({found.actual})"
        case notices.StateCompared():
            return f"{found.moment}: the parameters differ: {found.expected} recorded, {found.actual} now"
        case notices.ProgramRaised():
            return "".join(found.traceback).rstrip() or f"{found.kind}: {found.text}"
        case notices.Finished():
            return finished(found)
        case notices.Synthesized():
            return f"{found.moment} {found.op}: nothing is recorded, the answer is synthesized"
        case notices.Unlike():
            return f"{found.moment} is not as it was when it was first reached: {', '.join(found.what)}"
        case notices.Hit():
            return f"{found.moment}: stop {found.stop} is hit: {found.collective.get('profiling_name', '')}".rstrip(
                ": "
            )
        case notices.StopFailed():
            return f"{found.moment}: the condition of stop {found.stop} cannot be evaluated: {found.error}"
        case notices.CheckpointMade():
            return f"image {found.number} at {found.moment}: {figures.size(found.size_bytes)} in {found.cost_s:.1f} s"
        case notices.Said():
            return found.text
        case _:
            return str(found)


def is_bad(found: notices.Notice) -> bool:
    bad = notices.ProgramRaised | notices.Unlike | notices.StopFailed
    return isinstance(found, bad) or (isinstance(found, notices.StateCompared) and not found.equal)


def answer(found: told.Answer) -> str:
    """What a verb answers, as lines."""
    match found:
        case told.Arrived():
            beginning = "as far back as the capsule goes\n" if found.beginning else ""
            return beginning + stop_line(found.stop) if found.stop is not None else ""
        case told.Value():
            return value(found.value)
        case told.Stack():
            return stack(found.frames, found.chosen)
        case told.Source():
            return source(found.source)
        case told.Names():
            return names(found.names)
        case told.Peers():
            return peers(found.peers)
        case told.Info():
            return info(found)
        case told.StopTable():
            return "\n".join(_stop(stop, found.hits.get(stop.number, 0)) for stop in found.stops) or "no stops"
        case told.StopSet():
            return f"stop {found.stop.number} {'is gone' if found.gone else 'at'}: {found.stop.title}"
        case told.WatchTable():
            return "\n".join(_watch(watched) for watched in found.watched) or "no watches"
        case told.CheckpointTable():
            rows = [f"{c.number:>3}  {c.moment!s:<12} {figures.size(c.size_bytes)}" for c in found.checkpoints]
            return "\n".join([*rows, *([found.why_none] if found.why_none else [])])
        case told.Wrote():
            by = f" by {found.op}" if found.op else ""
            return f"{found.text} was last written at {found.moment}{by}{_place(found.frames)}"
        case told.Originated():
            how = "was born" if found.born else "came in"
            by = f" in {found.op}" if found.op else ""
            return f"the first NaN or infinity {how} at {found.moment}{by}: {found.what}{_place(found.frames)}"
        case told.Differs():
            return f"{found.text} {draw_difference(found, _PLAIN).plain}"
        case told.Help():
            return "\n".join(map(usage, found.verbs))
        case told.Memory():
            return str(found.answer)
        case told.Done():
            return found.what
        case _:
            return ""


def _stop(stop: StopSpec, hits: int) -> str:
    return f"{stop.number:>3}  {stop.title}  ({figures.plural(hits, 'hit')})"


def _watch(watched: Watched) -> str:
    shown = watched.error or (short(watched.value) if watched.value is not None else "not looked at yet")
    return f"{watched.number:>3}  {watched.text} = {shown}{'  (changed)' if watched.changed else ''}"


def _place(frames: Sequence[Frame]) -> str:
    return f"\n  at {frames[own_frame(tuple(frames))]}" if frames else ""


def stack(frames: Sequence[Frame], chosen: int) -> str:
    lines = [
        f"{'->' if number == chosen else '  '} {number:>3}  {frames[number]}"
        for number in reversed(range(len(frames)))
        if not is_library(frames[number]) or number in (chosen, 0)
    ]
    return "\n".join(lines) or "no Python frame of the program here"


def source(found: Json) -> str:
    if not found.get("lines"):
        return f"the source of {found.get('filename') or 'this place'} is not there"
    numbered = enumerate(found["lines"], int(found["first"]))
    rows = [f"{'->' if number == found['line'] else '  '} {number:>5}  {text}".rstrip() for number, text in numbered]
    return "\n".join([f"{found['filename']}:{found['line']} in {found.get('function', '')}", *rows])


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


def usage(verb: Verb) -> str:
    found = VERBS[verb]
    name = f"{verb} {found.takes}".strip() + (f" ({found.short})" if found.short else "")
    return f"{name:<30} {found.meaning}"


def help_text(word: str) -> str:
    return "\n".join(map(usage, [verb_of(word)] if word else list(VERBS)))


def _shown(value: Any) -> str:
    return figures.cut(", ".join(map(str, value)) if isinstance(value, list) else str(value), 200)
