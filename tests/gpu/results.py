"""Outcomes of checks as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    name: str
    what: str
    rows: Sequence[tuple[str, str]]
    failure: str
    skipped: str


def as_page(outcomes: Sequence[Outcome], machine: str, day: datetime, seconds: float) -> str:
    lines = [
        "# On a GPU",
        "",
        f"`make gpu`, {day:%Y-%m-%d %H:%M} UTC, {seconds:.0f} s. {machine}.",
        "",
    ]
    for outcome in outcomes:
        lines += [f"## {' '.join(outcome.what.split()).rstrip('.')}", ""]
        if outcome.failure:
            lines += [f"**Failed:** {outcome.failure}", ""]
        if outcome.skipped:
            lines += [f"Skipped: {outcome.skipped}.", ""]
        if outcome.rows:
            lines += ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in outcome.rows), ""]
    return "\n".join(lines)
