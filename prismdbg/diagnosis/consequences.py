"""What follows from calls that do not fit together: backends abort ranks in them, or let them wait for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from prismdbg.diagnosis.failures import Died, Raised
from prismdbg.diagnosis.mismatches import Mismatch
from prismdbg.diagnosis.stops import Stopped
from prismdbg.diagnosis.verdict import Verdict
from prismdbg.model.collective import Collective, Identity

_Place = tuple[int, Identity]  # a rank, and its call: messages and collectives are numbered apart


def by_cause(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Ranks that failed in such a call failed after it. That all came to it and wait is told by it."""
    causes = {
        _place(call.rank, call.collective): verdict
        for verdict in verdicts
        if isinstance(verdict, Mismatch)
        for call in verdict.calls
    }
    return list(_told(verdicts, causes))


def _told(verdicts: Sequence[Verdict], causes: dict[_Place, Mismatch]) -> Iterator[Verdict]:
    for verdict in verdicts:
        failed_in = (
            verdict.last if isinstance(verdict, Died) else verdict.inside if isinstance(verdict, Raised) else None
        )
        cause = causes.get(_place(failed_in.rank, failed_in.collective)) if failed_in is not None else None
        if cause is not None:
            yield replace(verdict, began_wall_ns=max(verdict.began_wall_ns, cause.began_wall_ns + 1))
        elif not (isinstance(verdict, Stopped) and _only_waits(verdict, causes)):
            yield verdict


def _only_waits(stopped: Stopped, causes: dict[_Place, Mismatch]) -> bool:
    waits = [_place(wait.rank, wait.collective) for wait in stopped.stall.waits]
    return not stopped.absent and not stopped.stall.unknown and all(wait in causes for wait in waits)


def _place(rank: int, call: Collective) -> _Place:
    return rank, call.identity
