"""How memory looks as text: the curve, the peak, groups of live blocks, a difference; and the same as JSON."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from shutil import get_terminal_size
from typing import Any

from prismdbg.capsule.memory_format import CPU, device_name
from prismdbg.memory.backend import BackendModel
from prismdbg.memory.curve import Curve
from prismdbg.memory.difference import Difference
from prismdbg.memory.grouping import By, Entry, grouped
from prismdbg.memory.live import Live
from prismdbg.memory.peak import Peak
from prismdbg.memory.refused import Refusal, refusals
from prismdbg.memory.trace import Block, MemoryTrace
from prismdbg.memory.trace_end import TraceEnd
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted
from prismdbg.render import console
from prismdbg.render.fitting import fitted_table

BESIDE_CURVE = 12  # columns of the sizes beside it
MOST_POINTS = 200
_ROWS = 8
_NAME = re.compile(r"\S+(?: \S+)* {2,}")  # of the first of some pairs, up to where all values begin
_LEVELS = " ▁▂▃▄▅▆▇█"
UNCOUNTED = "not included: blocks that only C++ held at that time (DDP buckets, saved tensors)"


def curve_points() -> int:
    """As many as the terminal has room for; where there is none, 80 columns."""
    return max(1, min(get_terminal_size((80, 24)).columns - BESIDE_CURVE, MOST_POINTS))


def for_terminal(text: str) -> str:
    """With stacks that fit into a line of the terminal. A program that reads it gets all of them."""
    if not sys.stdout.isatty():
        return text
    width = get_terminal_size((80, 24)).columns
    rows, gap, table = text.partition("\n\n")
    values = _NAME.match(rows)
    column = values.end() if values is not None and values.end() <= width // 2 else None
    return "\n".join(console.in_rows(rows.split("\n"), width, column)) + gap + fitted_table(table, width)


def curve_text(curve: Curve) -> str:
    """Bars up to each point's highest; below them where steps begin and where the peak is."""
    top = max(int(curve.high_bytes.max(initial=0)), 1)
    heights = [round(high / top * _ROWS * 8) for high in curve.high_bytes.tolist()]
    width = len(console.size(top))
    lines = []
    for row in range(_ROWS, 0, -1):
        label = console.size(top * row // _ROWS).rjust(width) if row in (_ROWS, _ROWS // 2) else " " * width
        lines.append(f"{label} │" + "".join(_LEVELS[min(max(h - (row - 1) * 8, 0), 8)] for h in heights))
    marks = [" "] * len(curve)
    begun = [point for _, point in curve.step_points] if any(step for step, _ in curve.step_points) else []
    for point in begun:
        marks[point] = "┬"
    marks[curve.peak_point] = "▲"
    first, last = curve.moment(0), curve.end
    steps = "┬ a step begins, " if begun else ""  # a snapshot of torch's allocator has no steps
    lines.append(" " * width + " └" + "".join(marks).replace(" ", "─"))
    least = "; lower bound" if curve.is_least else ""
    device = f"{curve.trace.device_name}: " if curve.trace.is_of_several else ""
    lines.append(" " * (width + 2) + f"{device}{first} to {last}; {steps}▲ the peak{least}")
    return "\n".join(lines)


def peak_text(
    trace: MemoryTrace,
    peak: Peak,
    groups: Sequence[Entry],
    ends: TraceEnd,
    backend: BackendModel | None = None,
    *,
    top: int,
    option: str = "",
) -> str:
    """`groups`: all of them, of which the `top` largest are shown. `option`: what shows more, where something does."""
    rows = [
        ("peak", f"{_least(peak)}{_exact(peak.size_bytes)} at {peak.moment}"),
        *_device(peak.live),
    ]
    if peak.allocation is not None:
        rows.append(("caused by", _made_by(peak.allocation)))
    rows += _shares(peak.live, peak.backend_bytes, is_least=peak.is_least, counts_backend=peak.counts_backend)
    rows += _modelled(backend)
    rows += _refused(refusals(trace), trace.shown)
    rows += _ends(ends)
    return f"{console.pairs(rows)}\n\n{_table(groups, top, option)}"


def live_text(live: Live, at: Moment, groups: Sequence[Entry], *, top: int, option: str = "") -> str:
    """`groups`, `top`, `option`: as of `peak_text`."""
    rows = [
        ("live", f"{_held(live)} at {at}"),
        *_device(live),
        *_shares(live, live.backend_bytes, is_least=live.is_least),
    ]
    return f"{console.pairs(rows)}\n\n{_table(groups, top, option)}"


def difference_text(difference: Difference, by: By, top: int, option: str = "") -> str:
    made, gone = difference.made, difference.gone
    unseen = "at most " if gone.is_least else ""  # a block that is in no sum may have gone, too
    rows = [
        ("growth", unseen + _exact(difference.growth_bytes)),
        *_device_names(made.trace),
        ("allocated, still live", f"{_exact(made.program_bytes)} in {len(made)} blocks"),
        ("freed", f"{_least(gone)}{_exact(gone.program_bytes)} in {len(gone)} blocks"),
    ]
    return f"{console.pairs(rows)}\n\n{_table(grouped(made, by), top, option)}"


def peak_json(
    trace: MemoryTrace, peak: Peak, groups: Sequence[Entry], ends: TraceEnd, backend: BackendModel | None = None
) -> dict[str, Any]:
    return {
        "peak_bytes": peak.size_bytes,
        "moment": str(peak.moment),
        **_device_json(peak.live),
        **_least_json(trace, is_least=peak.is_least),
        "approximate_lines_bytes": peak.live.roughly_placed_bytes,
        "made_by": _block_json(peak.allocation) if peak.allocation is not None else None,
        "before_bytes": peak.live.before_bytes,
        "backend_bytes": peak.backend_bytes,
        "backend_modelled": _modelled_json(backend) if backend is not None else None,
        "b_moment": str(ends.b) if ends.b is not None else None,
        "b_bytes": ends.at_b.program_bytes if ends.at_b is not None else None,
        "end_moment": str(ends.stands or ends.last_moment),
        "end_bytes": ends.last.program_bytes,
        "refused": [_refusal_json(refusal) for refusal in refusals(trace)],
        "records": len(trace),
        "groups": [_entry_json(entry) for entry in groups],
    }


NO_PEAK_JSON = {"peak_bytes": None, "moment": None, "groups": ()}  # where nothing was traced


def live_json(live: Live, at: Moment, groups: Sequence[Entry]) -> dict[str, Any]:
    return {
        "moment": str(at),
        **_device_json(live),
        "program_bytes": live.program_bytes,
        **_least_json(live.trace, is_least=live.is_least),
        "approximate_lines_bytes": live.roughly_placed_bytes,
        "before_bytes": live.before_bytes,
        "backend_bytes": live.backend_bytes,
        "blocks": len(live),
        "groups": [_entry_json(entry) for entry in groups],
    }


def difference_json(difference: Difference, by: By, top: int) -> dict[str, Any]:
    return {
        "device": difference.made.trace.device_name,
        "growth_bytes": difference.growth_bytes,
        "growth_is_most": difference.gone.is_least,
        "made_bytes": difference.made.program_bytes,
        "gone_bytes": difference.gone.program_bytes,
        "made": [_entry_json(entry) for entry in grouped(difference.made, by)[:top]],
    }


def _device_names(trace: MemoryTrace) -> list[tuple[str, str]]:
    """Which device's memory is shown, where there is a choice."""
    if trace.parts.untraced:
        return [("device", f"cpu; memory of GPUs is not traced: {trace.parts.untraced}")]
    if not trace.is_of_several:
        return []
    others = ", ".join(device_name(device) for device in trace.devices if device != trace.shown)
    return [("device", trace.device_name + (f"; also traced: {others}" if others else ""))]


def _device(live: Live) -> list[tuple[str, str]]:
    """And what its allocator holds besides the blocks."""
    rows = _device_names(live.trace)
    if live.reserved_bytes:
        rows.append(("reserved", f"{_exact(live.reserved_bytes)} by torch's allocator"))
        rows.append(("fragmentation", f"{_exact(live.unused_bytes)} of it in no block: cached, or rounded up"))
    return rows


def _device_json(live: Live) -> dict[str, Any]:
    return {"device": live.trace.device_name, "reserved_bytes": live.reserved_bytes, "unused_bytes": live.unused_bytes}


def _least(found: Peak | Live) -> str:
    return "at least " if found.is_least else ""


def _least_json(trace: MemoryTrace, *, is_least: bool) -> dict[str, Any]:
    """`uncounted_bytes`: what may be missing, at most; null where no bound is known."""
    return {"is_least": is_least, "uncounted_bytes": trace.uncounted_bytes if is_least else 0}


def _shares(live: Live, backend_bytes: int, *, is_least: bool, counts_backend: bool = False) -> list[tuple[str, str]]:
    """What of it is not known by its maker, and what is not the program's."""
    rows = []
    old = f"{_exact(live.before_bytes)} of it is older than the trace"
    if is_least:
        rows.append(("before start moment", f"at least {old}\n{UNCOUNTED}: {_bound(live.trace.uncounted_bytes)}"))
    elif live.before_bytes:
        rows.append(("before start moment", old))
    if rough := live.roughly_placed_bytes:
        rows.append(
            ("approximate lines", f"{_exact(rough)} of it: the last line known of the thread, maybe an earlier one")
        )
    if backend_bytes:
        where = "of it" if counts_backend else "more"
        rows.append(("backend", f"{_exact(backend_bytes)} {where}: the communication backend's own"))
    return rows


def _ends(ends: TraceEnd) -> list[tuple[str, str]]:
    """One moment has one sum: what `memory --until`, `memory --at` and the debugger say of it, too."""
    rows = []
    if ends.at_b is not None and ends.stands != ends.b:
        rows.append(
            ("live at end moment", f"{_held(ends.at_b)} at the end moment {ends.b}, the capsule's last collective")
        )
    if ends.stands is not None:
        rows.append(("live", f"{_held(ends.last)} at {ends.stands}, where the rank is stopped"))
    else:
        rows.append(("live at end of trace", f"{_held(ends.last)} after {ends.last_moment}, the last traced moment"))
    return rows


def _held(live: Live) -> str:
    return f"{_least(live)}{_exact(live.program_bytes)}"


def _bound(uncounted_bytes: int | None) -> str:
    return "amount unknown" if uncounted_bytes is None else f"at most {_exact(uncounted_bytes)}"


def _modelled(backend: BackendModel | None) -> list[tuple[str, str]]:
    """What a real rank's backend would stage: in no trace of an emulated one."""
    if backend is None:
        return []
    text = f"modelled: {_exact(backend.at_once_bytes)} at once"
    if backend.largest is not None:
        record = backend.largest
        place = f", {record.source}" if record.source is not None else ""
        text += f", for {record.name} at {record.moment}{place}"
        calls = counted(backend.collectives, "collective")
        text += f"\n{_exact(backend.all_bytes)} in all {calls} together; calls that overlap hold more at once"
    if backend.not_modelled:
        text += f"\nnot modelled: {counted(backend.not_modelled, 'collective')}, not gloo's on a CPU"
    return [("backend", text)]


def _modelled_json(backend: BackendModel) -> dict[str, Any]:
    return {
        "at_once_bytes": backend.at_once_bytes,
        "all_bytes": backend.all_bytes,
        "moment": str(backend.largest.moment) if backend.largest is not None else "",
        "collective": backend.largest.name if backend.largest is not None else "",
        "not_modelled": backend.not_modelled,
    }


def _refused(found: Sequence[Refusal], device: int) -> list[tuple[str, str]]:
    """The first that the cap, or a GPU's allocator, did not let through, and how many came after it."""
    if not found:
        return []
    first = found[0]
    more = f"\nand {len(found) - 1} more after it" if len(found) > 1 else ""
    title = "cap reached" if device == CPU else "out of memory"
    return [(title, f"at {first.moment}, {_exact(first.held_bytes)} live\n{_made_by(first)}{more}")]


def _made_by(block: Block | Refusal) -> str:
    site = block.site
    op = site.op if site.op in ("", site.outer_op) else f"{site.op} in {site.outer_op}"
    parts = [f"{op or 'no operator'}, {_exact(block.size_bytes)}"]
    if site.module:
        parts.append(f"module {site.module}")
    if site.own_frame is not None:
        parts.append(str(site.own_frame))
    return "\n".join(parts)


def _exact(size_bytes: int) -> str:
    return f"{console.size(size_bytes)} ({size_bytes} bytes)" if abs(size_bytes) >= 1024 else f"{size_bytes} bytes"


def _table(groups: Sequence[Entry], top: int, option: str) -> str:
    """The largest, and how much the others are: a table that ends without a word looks like all of it."""
    rows = [(console.size(entry.size_bytes), str(entry.blocks), entry.label) for entry in groups[:top]]
    table = console.columns(("size", "blocks", "of"), rows, right=("size", "blocks"))
    if not (rest := groups[top:]):
        return table
    together = " together" if len(rest) > 1 else ""
    more = f"and {counted(len(rest), 'more group')}, {console.size(sum(e.size_bytes for e in rest))}{together}"
    return f"{table}\n{more}" + (f"; {option} {len(groups)} shows all" if option else "")


def _entry_json(entry: Entry) -> dict[str, Any]:
    """By stack: with all its frames, innermost first, of which the label of a deep one leaves out some."""
    frames = [{"filename": frame.filename, "line": frame.line, "name": frame.name} for frame in entry.frames]
    found = {"label": entry.label, "bytes": entry.size_bytes, "blocks": entry.blocks}
    return found | ({"frames": frames} if frames else {})


def _refusal_json(refusal: Refusal) -> dict[str, Any]:
    return {"moment": str(refusal.moment), "held_bytes": refusal.held_bytes, **_block_json(refusal)}


def _block_json(block: Block | Refusal) -> dict[str, Any]:
    own = block.site.own_frame
    return {
        "bytes": block.size_bytes,
        "op": block.site.op,
        "outer_op": block.site.outer_op,
        "module": block.site.module,
        "file": own.filename if own is not None else "",
        "line": own.line if own is not None else 0,
        "function": own.name if own is not None else "",
    }
