"""Where a rank is, and when it failed, by its log so far."""

from __future__ import annotations

from pathlib import Path

from prismdbg.capsule.log.events import RankLog
from prismdbg.errors import CapsuleError
from prismdbg.log.rank_log import read_log
from prismdbg.model.collective import State, group_title

NEVER_NS = 1 << 63


def standing_of(folder: Path) -> str:
    """`is in all_reduce (2.7, group tp) at train.py:31 in step`, or after its last call."""
    log = _log_or_none(folder)
    if log is None or not log.collectives:
        return "has not issued a call yet"
    is_open = [call for call in log.collectives if call.state is State.SCHEDULED]
    call = (is_open or log.collectives)[-1]
    at = f" at {call.source}" if call.source is not None else ""
    word = "is in" if is_open else "is after"
    return f"{word} {call.name} ({call.moment}, group {group_title(log.groups, call.group)}){at}"


def raised_at_ns(folder: Path) -> int:
    """When its program raised what it ended with; `NEVER_NS` where it did not."""
    log = _log_or_none(folder)
    return next((n.time_ns for n in log.notes if n.kind == "incident"), NEVER_NS) if log is not None else NEVER_NS


def _log_or_none(folder: Path) -> RankLog | None:
    try:
        return read_log(folder)
    except CapsuleError:  # it is only being made, or damaged, which is said when the rank is judged
        return None
