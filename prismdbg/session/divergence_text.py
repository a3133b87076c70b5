"""The story of a divergence as text: what was recorded beside what is called now, the group's last calls, the line
of source, and what to do next. Takes the agent's `diverged` event; asks nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prismdbg.model.collective import Frame
from prismdbg.model.plain_text import one_line
from prismdbg.session.frames import frames_of, own_frame

Json = dict[str, Any]

_GROUP = "process_group"
_STRUCTURAL = (
    "the program took a different path from the recording: compare the two lines above, then check why it took another "
    "branch: changed code, other data or arguments, a rank-dependent condition, unseeded random numbers"
)
_VALUES = (
    "the call is the same, but its values differ: an earlier computation differs. Print the inputs and check for "
    "changed code, unseeded random numbers, the time of day, other data, another number of threads"
)
_EXTRA = (
    "the program issues a collective that the recording does not have here: check for a loop that runs longer, or "
    "a branch that was not taken in the recorded run"
)


def render_divergence(event: Json, source: Sequence[str] = ()) -> str:
    """Several lines. `source`: lines around the program's own frame, marked, where a front end has them."""
    expected, actual = event.get("expected"), event["actual"]
    blocks = [
        [f"diverged at {event['moment']}: {headline(event)}"],
        _side_by_side(expected, actual, event["differences"]),
        _history(event),
        list(source),
        causes_lines(event),
        [f"try: {advice(event)}"],
    ]
    return "\n\n".join("\n".join(map(one_line, block)) for block in blocks if block)


def causes_lines(event: Json) -> list[str]:
    """Nothing where nobody has looked for them."""
    causes = event.get("causes")
    if not causes:
        return []
    lines = ["likely causes:", *(f"  {text}" for text in causes["found"])] if causes["found"] else []
    if causes["not_found"]:
        lines.append(f"checked and not found: {', '.join(causes['not_found'])}")
    return lines


def group_of(call: Json) -> str:
    """The group's title, else its name: older agents send no title."""
    return str(call.get("group_title", call[_GROUP]))


def headline(event: Json) -> str:
    """What differs, in one line."""
    if event.get("assumed"):
        return "peers are assumed to send data that differs from the recording"
    differences = event["differences"]
    if event.get("expected") is None:
        return f"{event['actual']['profiling_name']} is not in the recording; " + "; ".join(
            d["expected"] for d in differences
        )
    if all(not d["structural"] for d in differences):
        return f"{event['actual']['profiling_name']} sends different values from the recorded ones"
    return "this call differs from the recorded call in: " + ", ".join(
        d["field"].replace("_", " ") for d in differences
    )


def advice(event: Json) -> str:
    if event.get("expected") is None:
        return _EXTRA
    return _STRUCTURAL if any(d["structural"] for d in event["differences"]) else _VALUES


def issued_at(frames: list[Json]) -> str:
    """The program's own line, with how much of library code lies below it left out."""
    known = frames_of(frames)
    return str(known[own_frame(known)]) if known else "unknown"


def _side_by_side(expected: Json | None, actual: Json, differences: list[Json]) -> list[str]:
    differing = {d["field"]: d for d in differences}
    rows = [("", "recorded", "now", "")]
    for field, title in (
        ("profiling_name", "op"),
        (_GROUP, "group"),
        ("inputs", "inputs"),
        ("outputs", "outputs"),
        ("reduce_op", "reduce op"),
        ("root", "root"),
        ("tag", "tag"),
    ):
        mark = "<-" if title.replace(" ", "_") in differing else ""
        old, new = _shown(expected, field), _shown(actual, field)
        if field == _GROUP:
            old, new = group_of(actual) if old == new else old, group_of(actual)
        if old or new:
            rows.append((title, old if expected is not None else "-", new, mark))
    if sent := differing.get("sent"):
        rows.append(("sent", f"fingerprint {sent['expected']}", f"fingerprint {sent['actual']}", "<-"))
    if apart := differing.get("tolerance"):
        rows.append(("difference", apart["expected"], apart["actual"], "<-"))
    old_place = issued_at(expected["frames"]) if expected is not None else "-"
    rows.append(("line", old_place, issued_at(actual.get("frames", [])), ""))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        "  " + "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]).rstrip() for row in rows
    ]


def _shown(call: Json | None, field: str) -> str:
    """Both forms of a call: the record's sizes and dtypes, and the living call's texts."""
    if call is None:
        return ""
    if field in ("inputs", "outputs") and field not in call:
        kind = field.removesuffix("s")
        sizes, dtypes = call[f"{kind}_sizes"], call[f"{kind}_dtypes"]
        return _cut([f"{d}[{', '.join(map(str, s))}]" for s, d in zip(sizes, dtypes, strict=True)])
    value = call.get(field)
    if isinstance(value, list):
        return _cut([str(item) for item in value])
    return "" if value is None else str(value)


def _cut(tensors: list[str]) -> str:
    return ", ".join(tensors[:4]) + (f", ... ({len(tensors)})" if len(tensors) > 4 else "")


def _history(event: Json) -> list[str]:
    group = group_of(event["actual"])
    records = event.get("history") or []
    if not records:
        return [f"no collective of group {group} came before it"]
    rows = [(r["moment"], r["profiling_name"], _shown(r, "inputs") or _shown(r, "outputs"), _line(r)) for r in records]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  " + "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]).rstrip() for row in rows
    ]
    return [f"the last of group {group}, as recorded:", *lines]


def _line(record: Json) -> str:
    frames: tuple[Frame, ...] = frames_of(record["frames"])
    if not frames:
        return ""
    frame = frames[own_frame(frames)]
    return f"{frame.filename.rsplit('/', 1)[-1]}:{frame.line}"
