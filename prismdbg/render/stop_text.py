"""What is shown at a stop, as text: where the rank is, its stack, its source, its peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from prismdbg.expr.template import parse_template
from prismdbg.model.breakpoints import ON_THE_WAY, StopReason
from prismdbg.model.collective import Frame
from prismdbg.model.frame import place_of, source_of
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS
from prismdbg.model.plain_text import one_line
from prismdbg.model.plurals import counted
from prismdbg.render.console import columns, size
from prismdbg.render.value_text import in_a_sentence
from prismdbg.session.divergence_text import group_of, headline
from prismdbg.session.frames import is_library, own_frame
from prismdbg.session.line import Verb
from prismdbg.session.notices import (
    AtRecordedHang,
    BreakpointFailed,
    Cancelled,
    CheckpointMade,
    Departed,
    EndOfLog,
    Finished,
    HangsAgain,
    Hit,
    Lost,
    Notice,
    ProgramRaised,
    Progress,
    Said,
    StateCompared,
    Stopped,
    Synthesized,
    Unlike,
)
from prismdbg.session.outside_collective import OutsideCollective

Json = dict[str, Any]

_WHY: dict[str, str] = {
    StopReason.START: "before the first line that follows `import torch`",
    StopReason.RESTORED: "at the restore point, where the program gets the state of the snapshot",
    StopReason.PARKED: "as captured, not run yet",
    StopReason.END_OF_LOG: "the recording ends here; later answers are synthesized",
}
_ROWS = ("module", "inputs", "outputs", "reduce_op", "root", "tag", "is_async")


def logpoint_text(hit: Hit) -> str | None:
    """What a logpoint prints that has a text of its own; None for others."""
    if not hit.message:
        return None
    template = parse_template(hit.message)
    values = [in_a_sentence(value) for value in hit.values]
    if len(template.expressions) != len(values):  # of a rank with an older prismdbg, which sends none
        call = hit.collective
        told = {
            "moment": hit.moment,
            "op": call["profiling_name"],
            "group": group_of(call),
            "module": call.get("module"),
        }
        values = [
            str(told.get(each.text) or "<not sent by the older prismdbg in the capsule>")
            for each in template.expressions
        ]
    return one_line(template.filled(values))


def stop_line(stop: Stopped, *, beginning: bool = False, asked: str = "") -> str:
    """`asked`: the verb, where one brought the rank here; said instead of how it was carried out."""
    call = stop.collective
    first = "this is the capsule's start moment\n" if beginning else ""
    if not call:
        return f"{first}stopped at {stop.moment}: {one_line(reason_text(stop.reason))}"
    note = f"\n{_WHY[stop.reason]}" if stop.reason in _WHY else ""
    is_moved = stop.reason in (*Verb, *ON_THE_WAY)  # by this verb, or by one before where this one had nowhere to go
    came = asked if asked and is_moved else stop.reason
    reason = why(stop) if stop.stops else came
    reason += f", event {stop.event}" if stop.event else ""
    return f"{first}stopped at {stop.moment} ({one_line(reason)}): {call_line(call)}{note}"


def reason_text(reason: str) -> str:
    """What a `StopReason` says, in a line."""
    return _WHY.get(reason, reason)


def why(stop: Stopped) -> str:
    """`breakpoint 1: nan, breakpoint 3: all_reduce on dp`, or another reason."""
    named = zip_longest(stop.stops, stop.titles, fillvalue="")
    return ", ".join(stop_name(number, title) for number, title in named) or stop.reason


def stop_name(number: int | str, title: str) -> str:
    """`breakpoint 3: all_reduce on dp`."""
    return f"breakpoint {number}: {title}" if title else f"breakpoint {number}"


def own_line(frames: Sequence[Frame]) -> str:
    """The program's own line."""
    return str(frames[own_frame(tuple(frames))])


def event_line(event: Json) -> str:
    """`aten::mm`, or `allocation of 4096 B in aten::mm`; of another device than the CPU `... on cuda:0 in ...`."""
    name = one_line(event["profiling_name"]) or "no operator"
    if event["kind"] == "op":
        return f"{name}, about to run"
    device = event.get("device", "cpu")
    where = "" if device == "cpu" else f" on {device}"
    return f"{event['kind']} of {size(int(event['size_bytes']))}{where} in {name}"


def call_line(call: Json) -> str:
    """`all_reduce on group world: float32[512]`."""
    if "kind" in call:
        return event_line(call)
    tensors = call.get("inputs") or call.get("outputs") or []
    shown = ", ".join(tensors[:3]) + (f", ... ({len(tensors)} tensors)" if len(tensors) > 3 else "")
    return one_line(f"{call['profiling_name']} on group {group_of(call)}" + (f": {shown}" if shown else ""))


def info_text(stop: Stopped, tally: Json, visited: Sequence[Moment]) -> str:
    rows = [("moment", str(stop.moment)), ("stopped", why(stop))]
    if stop.collective:
        rows.append(("op", str(stop.collective["profiling_name"])))
        rows += _group_rows(stop.collective)
    for field in _ROWS:
        value = stop.collective.get(field)
        if value not in (None, "", []):
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            rows.append((field.replace("_", " "), text))
    rows.append(("compared", tally_text(tally)))
    rows.append(("visited", ", ".join(map(str, visited[-8:]))))
    return "\n".join(f"{name:<14}{one_line(text)}" for name, text in rows)


def _group_rows(call: Json) -> list[tuple[str, str]]:
    """The group and which of its calls this is; nothing between collectives."""
    name, title = call["process_group"], group_of(call)
    identity = str(call.get("identity", "")).replace(f"group {name} ", f"group {title} ", 1)
    return [(row, text) for row, text in (("group", title), ("identity", identity)) if text]


def tally_text(tally: Json) -> str:
    fingerprints = tally["fingerprints"] - tally.get("object_notes", 0)
    parts = [f"{counted(tally['compared'], 'collective')} compared, {fingerprints} with their payload fingerprints"]
    if tally.get("object_notes"):
        objects = counted(tally["object_notes"], "pickled object")
        parts.append(f"{objects} that {'differs' if tally['object_notes'] == 1 else 'differ'}")
    again = tally.get("again", 0)
    parts.append(f"{again} synthesized as in the emulation" if again else f"{tally['synthesized']} synthesized")
    if again and tally["synthesized"]:
        parts.append(f"{tally['synthesized']} synthesized in another way")
    if tally.get("missing"):
        parts.append(f"{tally['missing']} still expected")
    return ", ".join(parts)


def notice_text(notice: Notice) -> str:
    """What is shown at once; empty for stops and divergences, which are shown with what the rank is asked then."""
    match notice:
        case Synthesized():
            name = OPS[notice.op].label if notice.op in OPS else notice.op
            return one_line(f"{notice.moment} {name}: no recording, the answer is synthesized")
        case Departed():
            what = one_line(headline(notice.story))
            return (
                f"{notice.moment}: the replay no longer follows the recording: {what}; later values depend on "
                "synthesized data"
            )
        case EndOfLog():
            return f"the whole recording was replayed: {tally_text(notice.tally)}"
        case StateCompared(equal=True):
            return one_line(f"{notice.moment}: the parameters equal the recorded ones ({notice.actual})")
        case StateCompared():
            return one_line(f"{notice.moment}: the parameters differ: {notice.expected} recorded, {notice.actual} now")
        case ProgramRaised():
            return "".join(notice.traceback).rstrip() or f"{notice.kind}: {notice.text}"
        case Finished():
            return finished_text(notice)
        case Hit():
            if (own := logpoint_text(notice)) is not None:
                return f"{notice.moment} {own}"
            return f"{notice.moment} {stop_name(notice.stop, notice.title)}; hit by {call_line(notice.collective)}"
        case BreakpointFailed():
            name = stop_name(notice.stop, notice.title)
            why = one_line(notice.error)
            return f"{notice.moment} {name}; its condition cannot be evaluated, the rank continues: {why}"
        case Unlike():
            what = ", ".join(notice.what)
            return f"{notice.moment} differs from the last visit: {what}. The replay is not deterministic"
        case Lost():
            lost = one_line(f"the rank is lost: {notice.why}")
            return f"{lost}\ntype `restart`, or any command that goes back, to start it again"
        case AtRecordedHang():
            where = f", at {notice.hang.place}" if notice.hang.place else ""
            return one_line(
                f"everything recorded was replayed, and rank {notice.hang.rank} hung here{where}; "
                f"waiting {notice.hang.bound_s:.3g} s to see whether it hangs again"
            )
        case HangsAgain():
            return hang_text(notice)
        case CheckpointMade(asked=True):
            return checkpoint_text(notice)
        case Cancelled() | Said():
            return one_line(notice.text)
        case _:
            return ""


def checkpoint_text(made: CheckpointMade) -> str:
    """A number that was told before says what became of it."""
    which = f"checkpoint {made.number} at {made.moment}"
    if made.is_kept:
        return f"{which} exists already: {size(made.size_bytes)}"
    again = ", taken again" if made.again else ""
    return f"{which}{again}: {size(made.size_bytes)} in {made.cost_s:.2f} s"


def hang_text(found: HangsAgain) -> str:
    """The verdict, where the rank is, and what can be done."""
    hang, frames = found.hang, found.known_frames
    where = [f"rank {hang.rank} is at {place_of(frames)}"] if frames else []
    if not found.frames:
        where = [f"in the recording, rank {hang.rank} was at {hang.place}; {found.why_not}"] if frames else []
    elif hang.frames and source_of(found.frames) != source_of(hang.frames):
        where = [f"{where[0]}; in the recording it was at {hang.place}"]
    stack = [where_text(frames, own_frame(frames))] if frames else []
    return "\n".join([one_line(hang_headline(found)), *map(one_line, where), *stack, found.hint])


def hang_headline(found: HangsAgain) -> str:
    """In a line."""
    hang = found.hang
    grounds = f"; {hang.grounds}" if hang.grounds else ""
    return f"hangs again, as recorded: no further collective within {hang.bound_s:.3g} s after {found.moment}{grounds}"


def progress_texts(progress: Progress) -> tuple[str, ...]:
    """`running, pass 2, at 12.3, 40 of 120 collectives`, then shorter ones that keep how far it is."""
    which = progress.which_pass
    at = "" if str(progress.moment) in progress.text else f", at {progress.moment}"
    total = counted(progress.total, "collective")
    number = f", {min(progress.done, progress.total)} of {progress.total}" if progress.total else ""
    done = f", {min(progress.done, progress.total)} of {total}" if progress.total else ""
    text = progress.text
    return f"{text}{which}{at}{done}", f"{text}{which}{done}", f"{text}{which}{number}", f"{text}{number}", text


def progress_text(progress: Progress) -> str:
    """`running, pass 2, at 12.3, 40 of 120 collectives ...`"""
    return f"{progress_texts(progress)[0]} ..."


def finished_text(end: Finished) -> str:
    missing = end.tally.get("missing", 0)
    note = f"\nnot reached: {counted(missing, 'recorded collective')}" if missing else ""
    return f"the program ended with {end.code} after {end.moment}: {tally_text({**end.tally, 'missing': 0})}{note}"


def where_text(frames: Sequence[Frame], chosen: int) -> str:
    """Innermost frame last, as in a traceback; library code in one line a run."""
    if not frames:
        return "no Python frame of the program here"
    lines: list[str] = []
    hidden = 0
    for number in reversed(range(len(frames))):
        frame = frames[number]
        if is_library(frame) and number not in (chosen, 0):
            hidden += 1
            continue
        if hidden:
            lines.append(f"        ... {counted(hidden, 'frame')} of libraries")
            hidden = 0
        lines.append(f"{'->' if number == chosen else '  '} {number:>3}  {frame}")
    return "\n".join(lines)


def standing_text(standing: OutsideCollective) -> str:
    """Of a rank that was captured at no collective: where, and what can be done."""
    stack = [where_text(standing.frames, own_frame(standing.frames))] if standing.frames else []
    return "\n".join([standing.text, *stack, standing.hint])


def source_lines(source: Json) -> Iterator[str]:
    """With the line that is executed marked."""
    if not source["lines"]:
        if length := source.get("length"):
            yield one_line(f"{source['filename']} has {counted(length, 'line')}")
            return
        unknown = "" if "length" in source else ", or the file has no such line"  # a capsule's rank may be of before
        yield one_line(f"no source for {source['filename'] or 'this place'}{unknown}")
        return
    yield one_line(f"{source['filename']}:{source['line']} in {source['function']}")
    for number, text in enumerate(source["lines"], source["first"]):
        yield one_line(f"{'->' if number == source['line'] else '  '} {number:>5}  {text}").rstrip()


def peers_text(peers: Json) -> str:
    rows = [[str(m["rank"]), str(m["group_rank"]), m["role"], _arrived(m, peers)] for m in peers["members"]]
    title = one_line(f"group {peers['title']} of {peers['size']}")
    took = peers["recorded_ns"]
    note = f"\nin the recorded run it took {took / 1e6:.3f} ms" if took is not None else ""
    return f"{title}\n{columns(('rank', 'in group', 'answer', 'arrived'), rows, right=('rank', 'in group'))}{note}"


def _arrived(member: Json, peers: Json) -> str:
    after_ns = member.get("after_first_ns")
    if after_ns is None:
        return str(member["arrived"])
    if after_ns == 0:
        return "first"
    return f"+{after_ns / 1e6:.3f} ms" + (", the last" if member["rank"] == peers.get("last") else "")


def locals_text(names: Sequence[Json]) -> str:
    if not names:
        return "no names here"
    width = min(max(len(name["name"]) for name in names), 24)
    return "\n".join(one_line(f"{name['name']:<{width}}  {name['text']}") for name in names)
