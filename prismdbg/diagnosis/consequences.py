"""What follows from calls that do not fit together, for backends abort ranks in them, or let them wait for ever; and
from long waits, which watchdogs end."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace

from prismdbg.diagnosis.failures import Died, Raised
from prismdbg.diagnosis.mismatches import Mismatch
from prismdbg.diagnosis.stops import LONG_WAIT_NS, Stopped
from prismdbg.diagnosis.verdict import Certainty, Verdict
from prismdbg.model.collective import Collective, Identity

_HANG_NS = 60_000_000_000  # whatever ends a rank after such a wait: a watchdog, or a person

_Place = tuple[int, Identity]  # a rank, and its call: messages and collectives are numbered apart


def by_cause(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Ranks that failed in such a call failed after it. That all came to it and wait is told by it. A rank that died in
    a long wait comes after what it waited for."""
    causes = {
        _place(call.rank, call.collective): verdict
        for verdict in verdicts
        if isinstance(verdict, Mismatch)
        for call in verdict.calls
    }
    stops = [verdict for verdict in verdicts if isinstance(verdict, Stopped) and verdict.certainty is Certainty.CERTAIN]
    told = _told(verdicts, causes)
    return [_after_its_wait(one, stops) if isinstance(one, Died) else one for one in told]


def _after_its_wait(died: Died, stops: Sequence[Stopped]) -> Died:
    began_ns = [stop.began_wall_ns + 1 for stop in stops if _ended_a_wait(died, stop)]
    return replace(died, began_wall_ns=max(died.began_wall_ns, *began_ns)) if began_ns else died


def _ended_a_wait(died: Died, stop: Stopped) -> bool:
    """As NCCL's watchdog aborts a rank whose call takes too long."""
    timeouts = [wait.collective.timeout_ms for wait in stop.stall.waits if wait.rank == died.ranks[0]]
    if not timeouts or stop.waited_ns is None:
        return False
    timeout_ns = timeouts[0] * 1_000_000 if timeouts[0] > 0 else _HANG_NS  # most calls have none of their own
    least_ns = LONG_WAIT_NS if died.signal == signal.SIGABRT else min(_HANG_NS, timeout_ns)
    return stop.waited_ns >= least_ns


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
