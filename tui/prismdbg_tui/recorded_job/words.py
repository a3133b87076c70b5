"""What the screen of a recorded job says: header, findings, a rank's row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from rich.text import Text

from prismdbg.diagnosis.verdict import Verdict, without_folders
from prismdbg.jobs.run_overview import Floats, RankRow, RunOverview, WaitedFor
from prismdbg.model.moment import Moment
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.finding_signs import SIGNS

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDE = 110  # columns
_STRIPS = (6, 16)  # of a rank that was waited for; where it is wide


def heading(job: RunOverview, at: Moment | None = None) -> str:
    """`at`: where ranks open."""
    ranks = figures.plural(len(job.ranks), "rank")
    calls = figures.plural(sum(row.collectives for row in job.ranks), "collective")
    state = "running" if job.is_running else "ended"
    opens = f" · opens ranks at {at}" if at is not None else ""
    return f"{ranks} · {calls} · {figures.duration(job.lasted_ns)} · {state}{opens}"


def findings(job: RunOverview, chosen: int, colors: dict[str, str], room: int) -> Text:
    """The chosen one with all its lines, the others with one each, as far as there is room."""
    text = Text(no_wrap=True, overflow="ellipsis")
    verdicts = job.diagnosis.verdicts
    if not verdicts:
        text.append(figures.clean(job.diagnosis.summary))
        return text
    lines: list[Text] = []
    for number, verdict in enumerate(verdicts):
        lines.append(_finding(verdict, number == chosen, colors))
        if number == chosen:
            lines += [Text(f"      {_brief(line)}", "dim") for line in verdict.lines]
    first = _first_line(verdicts, chosen, len(lines), room)
    shown = lines[first : first + room]
    if len(lines) - first > room:
        shown[-1:] = [Text(f"  … {len(lines) - first - room + 1} more lines: prismdbg why", "dim")]
    return Text("\n").join(shown)


def _first_line(verdicts: Sequence[Verdict], chosen: int, lines: int, room: int) -> int:
    """So that the chosen one, and what belongs to it, is to be seen."""
    last = chosen + len(verdicts[chosen].lines)
    return min(chosen, max(last + 1 - room, 0), max(lines - room, 0)) if last + 1 > room else 0


def _finding(verdict: Verdict, is_chosen: bool, colors: dict[str, str]) -> Text:
    sign, color = SIGNS[verdict.certainty]
    text = Text("▸ " if is_chosen else "  ")
    text.append(f"{sign} {verdict.certainty} ", f"bold {colors[color]}")
    return text.append(_brief(verdict.text), "bold" if is_chosen else "")


def _brief(text: str) -> str:
    return without_folders(figures.clean(text))


def cells(row: RankRow, sensors: Sequence[str], marked: str) -> list[Text]:
    """`marked`: the colour of a rank that a finding is about; empty for others."""
    failed = row.state in ("failed", "died")
    return [
        Text(str(row.rank), f"bold {marked}" if marked else "bold", justify="right"),
        Text(figures.clean(row.state), f"bold {marked}" if failed and marked else ""),
        Text(row.moment, justify="right"),
        Text(figures.clean(row.last)),
        Text(figures.clean(row.at)),
        Text(figures.duration(row.waited_ns) if row.waited_ns else "-", justify="right"),
        Text(figures.duration(row.awaited_ns) if row.awaited_ns else "-", justify="right"),
        Text(figures.size(row.peak_bytes) if row.peak_bytes else "-", justify="right"),
        *(Text(f"{row.sensors[name]:.0%}" if name in row.sensors else "-", justify="right") for name in sensors),
    ]


def waits(row: RankRow, job: RunOverview, width: int) -> Text:
    """The ranks that this one waited for, and when: as many as there is room for."""
    text = Text(f" rank {row.rank} ", "bold", no_wrap=True, overflow="ellipsis")
    if not row.waited_for:
        return text.append(_without_waits(row, job), "dim")
    text.append("waited for", "dim")
    first, *others = [_wait(wait, _STRIPS[width >= _WIDE]) for wait in row.waited_for]
    unknown = f" · unknown in {figures.plural(row.unknown_waits, 'collective')}" if row.unknown_waits else ""
    text.append_text(first)
    for other in others:
        if text.cell_len + other.cell_len + 2 > width - len(unknown):
            break
        text.append(" ·", "dim").append_text(other)
    return text.append(unknown, "dim")


def _without_waits(row: RankRow, job: RunOverview) -> str:
    if not job.clocks_agree:
        return "waits are unknown: the ranks' clocks differ"
    if not row.known_waits:
        return "waits are unknown: no collective on CPUs ended in all ranks' logs"
    if not row.unknown_waits:
        return "no wait for another rank in collectives that completed"
    known = figures.plural(row.known_waits, "collective")
    unknown = f"unknown in {figures.count(row.unknown_waits)} on a device or not ended in all ranks' logs"
    return f"no wait for another rank in {known}; {unknown}"


def _wait(wait: WaitedFor, strip: int) -> Text:
    took, when = figures.duration(wait.waited_ns), strip_of(wait.when, strip)
    return Text.assemble((f" rank {wait.rank} ", "bold"), took, (f" {when} ", "dim"), f"at {wait.longest}")


def strip_of(inside: Floats, width: int) -> str:
    """One character for an equal part of the time; a part with anything in it is never blank."""
    if width < 1:
        return ""
    edges = np.linspace(0, len(inside), width + 1).astype(int)
    means = [float(inside[a : max(b, a + 1)].mean()) for a, b in pairwise(edges)]
    return "".join(_BLOCKS[0 if mean <= 0 else max(1, round(mean * 8))] for mean in means)
