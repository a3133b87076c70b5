"""The last collectives of each rank over time as SVG, for pages and notebooks. It loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape

from prismdbg.capsule.log.events import RankLog
from prismdbg.model.collective import Collective, State, group_title
from prismdbg.model.labels import labelled
from prismdbg.model.plain_text import plain

MOST_RANKS = 16
MOST_CALLS = 100
WIDTH, LANE, LABEL, HEAD = 900, 18, 60, 16
_COLORS = {State.COMPLETED: "#4c8bb8", State.FAILED: "#c0392b", State.SCHEDULED: "#e0a030"}
_NONFINITE = "#8e44ad"
LEGEND = (
    (_COLORS[State.COMPLETED], "completed"),
    (_COLORS[State.SCHEDULED], "not completed"),
    (_COLORS[State.FAILED], "failed"),
    (_NONFINITE, "sent NaN or Inf"),
)
_LEGEND_ENTRY = 130
_CHARACTER, _GAP = 6.2, 8  # of a label of a step: its width at most, and the room after it


@dataclass(frozen=True, slots=True)
class _Axis:
    """In nanoseconds since 1970."""

    begin: int
    end: int

    def x(self, time_ns: int) -> float:
        share = (min(max(time_ns, self.begin), self.end) - self.begin) / max(self.end - self.begin, 1)
        return LABEL + share * (WIDTH - LABEL)


def timeline_svg(
    logs: Mapping[int, RankLog],
    *,
    most_ranks: int = MOST_RANKS,
    most_calls: int = MOST_CALLS,
    words: Callable[[str], str] = plain,
    legend: bool = False,
) -> str:
    """Of the first ranks; empty where no rank has a collective. A call that did not end reaches the right border.

    words: makes texts of the program fit to be shown. legend: what the colours mean, below the ranks.
    """
    shown = {rank: log for rank, log in sorted(logs.items()) if log.collectives}
    shown = dict(list(shown.items())[:most_ranks])
    calls = {rank: _last(log, most_calls) for rank, log in shown.items()}
    times = [time for rank, log in shown.items() for call in calls[rank] for time in _span(call, log) if time]
    if not times:
        return ""
    begin, end = min(times), max(times)
    is_open = any(call.time_completed_ns is None for several in calls.values() for call in several)
    axis = _Axis(begin, end + (end - begin) // 10 if is_open else end)
    lanes = HEAD + LANE * len(shown)
    height = lanes + LANE * legend
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-size="11" '
        f'font-family="sans-serif" viewBox="0 0 {WIDTH} {height}" role="img" fill="currentColor">',
        f"<title>the last collectives of each rank, {(end - begin) / 1e9:.3g} s in all</title>",
        *_steps(next(iter(shown.values())), axis, lanes),
    ]
    for place, (rank, log) in enumerate(shown.items()):
        parts += _lane(HEAD + place * LANE, rank, log, calls[rank], axis, words)
    return "".join([*parts, *(_legend(lanes) if legend else ()), "</svg>"])


def _legend(top: int) -> Iterator[str]:
    for place, (ink, word) in enumerate(LEGEND):
        x = LABEL + place * _LEGEND_ENTRY
        yield f'<rect x="{x}" y="{top + 5}" width="9" height="9" fill="{ink}"/>'
        yield f'<text x="{x + 14}" y="{top + 13}">{word}</text>'


def _last(log: RankLog, most: int) -> list[Collective]:
    count = len(log.collectives)
    return [log.collectives[row] for row in range(max(count - most, 0), count)]


def _span(call: Collective, log: RankLog) -> tuple[int, int]:
    """Since 1970; 0 for an end that is not known."""
    ended = call.time_completed_ns
    return call.time_created_ns + log.wall_offset_ns, ended + log.wall_offset_ns if ended is not None else 0


def _steps(log: RankLog, axis: _Axis, height: int) -> Iterator[str]:
    """Where the steps of one rank begin."""
    times = [(mark.step, mark.time_ns + log.wall_offset_ns) for mark in log.steps]
    places = [(step, axis.x(time_ns)) for step, time_ns in times if axis.begin <= time_ns <= axis.end]
    for _, x in places:
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD - 4}" y2="{height}" stroke="#888" stroke-opacity=".35"/>'
    cells = [(step, round(x / _CHARACTER), f"step {step}") for step, x in places]
    shown = labelled(cells, int(WIDTH / _CHARACTER), round(_GAP / _CHARACTER))
    for (_, x), (_, cell, label) in zip(places, cells, strict=True):
        if shown.get(cell) == label:
            yield f'<text x="{x + 2:.1f}" y="{HEAD - 5}" fill-opacity=".7">{label}</text>'


def _lane(
    top: int, rank: int, log: RankLog, calls: list[Collective], axis: _Axis, words: Callable[[str], str]
) -> Iterator[str]:
    yield f'<text x="0" y="{top + LANE - 5}">rank {rank}</text>'
    for call in calls:
        since, until = _span(call, log)
        left = axis.x(since)
        width = max(axis.x(until or axis.end) - left, 1.0)
        color = _NONFINITE if call.sent_nonfinite else _COLORS[call.state]
        group = words(group_title(log.groups, call.group))
        title = escape(f"{call.moment} {words(call.name)} {group} {call.state} {words(call.place)}")
        yield (
            f'<rect x="{left:.1f}" y="{top + 2}" width="{width:.1f}" height="{LANE - 4}" '
            f'fill="{color}"><title>{title}</title></rect>'
        )
