"""A timeline of the last collectives of each rank as SVG, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from prismdbg.capsule.log_events import RankLog
from prismdbg.model.collective import Collective, State, group_title

MOST_RANKS = 16
MOST_CALLS = 100
WIDTH, LANE, LABEL = 900, 18, 60
_COLORS = {State.COMPLETED: "#4c8bb8", State.FAILED: "#c0392b", State.SCHEDULED: "#e0a030"}


def timeline_svg(logs: Mapping[int, RankLog]) -> str:
    """Of the first ranks; empty where no rank has a collective. A call that did not end reaches the right border."""
    shown = {rank: log for rank, log in sorted(logs.items())[:MOST_RANKS] if log.collectives}
    calls = {rank: _last(log) for rank, log in shown.items()}
    times = [time for rank, log in shown.items() for call in calls[rank] for time in _span(call, log) if time]
    if not times:
        return ""
    begin, end = min(times), max(times)
    lanes = [
        part
        for place, (rank, log) in enumerate(shown.items())
        for part in _lane(place, rank, log, calls[rank], begin, end)
    ]
    height = LANE * len(shown)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-size="11">'
    return head + "".join(lanes) + "</svg>"


def _last(log: RankLog) -> list[Collective]:
    count = len(log.collectives)
    return [log.collectives[row] for row in range(max(count - MOST_CALLS, 0), count)]


def _span(call: Collective, log: RankLog) -> tuple[int, int]:
    """Since 1970; 0 for an end that is not known."""
    ended = call.time_completed_ns
    return call.time_created_ns + log.wall_offset_ns, ended + log.wall_offset_ns if ended is not None else 0


def _lane(place: int, rank: int, log: RankLog, calls: list[Collective], begin: int, end: int) -> Iterator[str]:
    top = place * LANE
    yield f'<text x="0" y="{top + LANE - 5}">rank {rank}</text>'
    scale = (WIDTH - LABEL) / max(end - begin, 1)
    for call in calls:
        since, until = _span(call, log)
        left = LABEL + (since - begin) * scale
        width = max(((until or end) - since) * scale, 1.0)
        group = group_title(log.groups, call.group)
        title = escape(f"{call.moment} {call.name} {group} {call.state} {call.place}")
        yield (
            f'<rect x="{left:.1f}" y="{top + 2}" width="{width:.1f}" height="{LANE - 4}" '
            f'fill="{_COLORS[call.state]}"><title>{title}</title></rect>'
        )
