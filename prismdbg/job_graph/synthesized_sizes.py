"""What an emulated rank sends and allocates where the counts that it received were not the job's. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prismdbg.capsule.log_events import RankLog
from prismdbg.capsule.log_notes import SHAPING
from prismdbg.model import made_up

_MOST = 4


@dataclass(frozen=True, slots=True)
class Shaping:
    """A line of the program that receives counts. how: as in `made_up`; DONOR where peers sent what they computed from
    synthesized values."""

    collective: str
    axis: str
    where: str
    how: str

    @property
    def is_synthesized(self) -> bool:
        return self.how != made_up.DONOR

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
    """What must not be concluded."""
    found = []
    for each in shaping:
        if each.is_synthesized:
            found.append(
                f"that sizes and memory are the real job's: the counts that ranks received in {each} are synthesized "
                f"({each.how})"
            )
        else:
            found.append(
                f"that sizes and memory are the real job's: peers computed the counts of {each} from synthesized values"
            )
    more = len(found) - _MOST
    return [*found[:_MOST], *([f"that sizes are the real job's: {more} more lines like these"] if more > 0 else [])]
