"""The clock and the pace that an emulated rank is told to live by."""

from __future__ import annotations

from pathlib import Path

from prismdbg.model.schedule import Schedule
from prismdbg.rank.emulation.clocks import WallClock
from prismdbg.rank.emulation.open_calls import PacedClock
from prismdbg.rank.emulation.pace import Pace
from prismdbg.rank.emulation.scheduler_client import SchedulerClient
from prismdbg.settings.emulation import ClockKind, Emulation


def make_clock(settings: Emulation, turn: SchedulerClient) -> PacedClock:
    """Where the peers are not paced, the wall clock runs on."""
    wall = WallClock()
    turn.stood = wall.leave_out
    if not settings.schedule:
        return PacedClock(None, wall, turn.refuse)
    schedule = Schedule.load(Path(settings.schedule))
    if settings.clock is ClockKind.VIRTUAL:
        return PacedClock(Pace(schedule, None), None, turn.refuse)
    return PacedClock(Pace(schedule, wall.now_ns), wall, turn.refuse)
