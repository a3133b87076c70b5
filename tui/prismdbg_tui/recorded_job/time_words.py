"""What the map of all ranks' time says of the cell under the cursor: what its rank did, and who was waited for."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from prismdbg.diagnosis.lateness.rank_times import Wait
from prismdbg.diagnosis.lateness.time_parts import PARTS
from prismdbg.diagnosis.wording import rank_list
from prismdbg.jobs.run_overview import RankRow, RunOverview
from prismdbg_tui.drawing import figures
from prismdbg_tui.recorded_job.words import without_waits

_LEAST_SHARE = 0.005  # less would be 0%


def of_cell(row: RankRow, parts: slice, job: RunOverview, width: int, accent: str) -> Text:
    """Two lines."""
    begin, end = (job.lasted_ns * part / PARTS for part in (parts.start, parts.stop))
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f" ◆ rank {row.rank}", f"bold {accent}")
    text.append(f"  {figures.span(begin, end)}", "bold")
    for share in _shares(row, parts):
        if text.cell_len + len(share) + 3 <= width:  # half a number would be another one
            text.append(f" · {share}", "dim")
    waits = [text for _, text in sorted(_waits(row, parts), reverse=True)] or [_without(row, job, width - 1)]
    first, *others = waits
    text.append(f"\n {figures.cut_words(first, width - 1)}")
    for other in others:
        if len(first) + len(other) + 4 <= width:
            text.append(f" · {other}")
    return text


def _shares(row: RankRow, parts: slice) -> Iterator[str]:
    inside, waiting, awaited = (float(s[parts].mean()) for s in (row.inside, row.time.waiting, row.time.awaited))
    if not (is_seen := row.time.seen[parts].any()):
        yield "nothing recorded"
    of_log = ((inside - waiting, "in collectives"), (1 - inside, "between them")) if is_seen else ()
    if awaited >= _LEAST_SHARE:  # whatever it does meanwhile: the others add up without it
        yield f"awaited {awaited:.0%} of it"
    for share, what in ((waiting, "waits"), *of_log):
        if share >= _LEAST_SHARE:
            yield f"{share:.0%} {what}"


def _waits(row: RankRow, parts: slice) -> Iterator[tuple[int, str]]:
    """The longest one of this rank and of others for it, with their ns."""
    wait, delay = row.time.wait_in(parts), row.time.delay_in(parts)
    if wait is not None and wait.never_came:
        yield wait.length, f"waits{_how_long(wait)} in {_call(wait)}; {rank_list(wait.ranks)} never joined it"
    elif wait is not None:
        yield wait.length, f"longest wait:{_how_long(wait)} for {rank_list(wait.ranks)}, {_call(wait)}"
    if delay is not None and delay.never_came:
        yield delay.length, f"never joined {_call(delay)}; others wait{_how_long(delay)} for it"
    elif delay is not None:
        yield delay.length, f"longest delay: others waited{_how_long(delay)} for it, {_call(delay)}"


def _how_long(wait: Wait) -> str:
    return f" {figures.duration(wait.waited_ns)}" if wait.waited_ns is not None else " (how long is unknown)"


def _call(wait: Wait) -> str:
    at = f" at {figures.clean(wait.at)}" if wait.at else ""
    return f"{figures.clean(wait.op)} {wait.moment}{at}"


def _without(row: RankRow, job: RunOverview, width: int) -> str:
    if row.known_waits and not row.unknown_waits:
        return "no wait for another rank in this part of the time"
    return figures.first_fitting(without_waits(row, job), width)
