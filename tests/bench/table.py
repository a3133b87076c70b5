"""The rows of a section, and the markdown file that holds the sections measured so far."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench.spread import interval, quantile

HEAD = "| what | against | median | ratio | 95 % of the ratio | p10..p90 | runs | goal | met |"
RULE = "|---|---|---|---|---|---|---|---|---|"
_TITLE = "# What prismdbg costs, measured\n\nWritten by `make bench` (`python -m tests.bench`). "
_EXPLAINED = (
    "Ratios are medians over pairs measured one after the other; the interval is a bootstrap of that median, "
    "p10..p90 the spread of the single values (of the ratios where there is a ratio).\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`ratios` of the pairs, where there is something to compare with. `goal` bounds the ratio, else the median."""

    what: str
    values: Sequence[float]
    unit: str
    against: str = ""
    ratios: Sequence[float] = ()
    goal: float | None = None
    digits: int = 1

    def render(self) -> str:
        value = f"{median(self.values):.{self.digits}f} {self.unit}"
        cells = [self.what, self.against, value, *self._spread(), str(len(self.ratios or self.values)), self._goal()]
        return "| " + " | ".join([*cells, self.met]) + " |"

    @property
    def met(self) -> str:
        """By the median; unsure where that may as well lie on the other side of the goal."""
        if self.goal is None:
            return ""
        values = self.ratios or self.values
        likely = interval(values)
        unsure = likely is None or likely.low <= self.goal < likely.high
        return ("yes" if median(values) <= self.goal else "**no**") + (", unsure" if unsure else "")

    def _spread(self) -> list[str]:
        values, digits = (self.ratios, 3) if self.ratios else (self.values, self.digits)
        span = f"{quantile(values, 0.1):.{digits}f}..{quantile(values, 0.9):.{digits}f}"
        if not self.ratios:
            return ["", "", span]
        likely = interval(self.ratios)
        return [f"{median(self.ratios):.3f}", f"{likely.low:.3f}..{likely.high:.3f}" if likely else "too few", span]

    def _goal(self) -> str:
        if self.goal is None:
            return ""
        return f"<= {self.goal:g}" + ("" if self.ratios else f" {self.unit}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a section gives: rows, and sentences that a reader needs to understand them."""

    rows: Sequence[Row]
    notes: Sequence[str] = ()


def render(title: str, measured: Measured, circumstances: Sequence[str]) -> str:
    lines = [f"## {title}", "", HEAD, RULE, *(row.render() for row in measured.rows), ""]
    return "\n".join([*lines, *(f"- {note}" for note in (*measured.notes, *circumstances)), ""])


def merge(path: Path, sections: Mapping[str, str], order: Sequence[str]) -> None:
    """Puts the sections, by title, into the file; those not measured now stay as they are."""
    found = re.split(r"(?m)^(?=## )", path.read_text())[1:] if path.exists() else []
    known = {text.splitlines()[0].removeprefix("## "): text for text in found}
    known |= sections
    titles = [*(title for title in order if title in known), *(title for title in known if title not in order)]
    texts = [known[title].rstrip("\n") + "\n" for title in titles]
    path.write_text("\n".join([_TITLE + _EXPLAINED, *texts]))
