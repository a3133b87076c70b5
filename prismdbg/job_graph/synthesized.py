"""What follows from synthesized values in an emulated rank: sizes from counts, and decisions of the program. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.notes import DECISIONS, SHAPING
from prismdbg.model import synthesis

_MOST = 4


@dataclass(frozen=True, slots=True)
class Shaping:
    """A line of the program that receives counts. how: as in `synthesis`; DONOR where peers sent what they made of
    synthesized values."""

    collective: str
    axis: str
    where: str
    how: str

    @property
    def is_synthesized(self) -> bool:
        return self.how != synthesis.DONOR

    def __str__(self) -> str:
        at = f" at {self.where}" if self.where else ""
        return f"{self.collective} on {self.axis}{at}"


def shaping_of(logs: Iterable[RankLog]) -> list[Shaping]:
    """Each line once, synthesized counts first."""
    rows = [row for log in logs for note in log.notes if note.kind == SHAPING for row in note.data.get("rows", ())]
    found = dict.fromkeys(map(_shaping, rows))
    return sorted(found, key=lambda each: not each.is_synthesized)


def _shaping(row: Mapping[str, object]) -> Shaping:
    return Shaping(*(str(row.get(name, "")) for name in ("collective", "axis", "where", "how")))


def doubts_of(shaping: Iterable[Shaping]) -> list[str]:
    """What is not reliable."""
    found = []
    for each in shaping:
        if each.is_synthesized:
            found.append(f"sizes and memory: the counts that ranks received in {each} are synthesized ({each.how})")
        else:
            found.append(f"sizes and memory: peers computed the counts of {each} from synthesized values")
    more = len(found) - _MOST
    return [*found[:_MOST], *([f"sizes and memory: {more} more lines like these"] if more > 0 else [])]


def decisions_of(logs: Iterable[RankLog]) -> list[str]:
    """What is not reliable where the program decides by what may rest on synthesized values."""
    rows = [row for log in logs for note in log.notes if note.kind == DECISIONS for row in note.data.get("rows", ())]
    lines = list(dict.fromkeys((str(row.get("decided", "")), str(row.get("read", ""))) for row in rows))
    found = [
        f"the branches that the program took: it decides at {decided} by what it reads at {read}, which may depend on "
        "synthesized values"
        for decided, read in lines[:_MOST]
    ]
    more = len(lines) - _MOST
    return [*found, *([f"the branches that the program took: {more} more lines like these"] if more > 0 else [])]


def doubts_in(logs: Collection[RankLog]) -> list[str]:
    return [*doubts_of(shaping_of(logs)), *decisions_of(logs)]
