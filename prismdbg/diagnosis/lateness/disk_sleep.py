"""Whether a rank that slept did so for a disk or a file server: by its own state, and by I/O pressure.

The kernel weighs what each CPU saw by how busy the CPU was (`collect_percpu_times` in kernel/sched/psi.c): one thread
that waits beside many busy CPUs counts little. So the pressure of a machine does not say who waited. Only one that is
much too small for a single waiting thread says something: this rank probably did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from prismdbg.diagnosis.lateness.late_span import LateSpan
from prismdbg.diagnosis.lateness.rank_shares import RankTimes
from prismdbg.model.durations import brief

_LEAST_SHARE = 0.5  # of the sleep: seen as uninterruptible, or with its control group held up by I/O
# Of the least pressure that one thread leaves. One that waits for the journal of a file system leaves less, for another
# thread waits for the disk: fsync on ext4 left a third of it.
_MARGIN = 0.1


@dataclass(frozen=True, slots=True)
class DiskSleep:
    """`is_for_disk`: the sleep is named so. text: what shows it. lines: what is not known, or excluded."""

    is_for_disk: bool
    text: str = ""
    lines: tuple[str, ...] = ()


def more_asleep_ns(span: LateSpan, mine: RankTimes, others: Sequence[RankTimes]) -> float:
    """How much longer it slept than the other ranks."""
    return mine.asleep_ns(span.lasted_ns) - median(each.asleep_ns(span.lasted_ns) for each in others)


def disk_sleep(span: LateSpan, mine: RankTimes, others: Sequence[RankTimes]) -> DiskSleep:
    asleep_ns = more_asleep_ns(span, mine, others)
    if asleep_ns <= 0:
        return DiskSleep(is_for_disk=False)
    if mine.disk_share * span.lasted_ns >= _LEAST_SHARE * asleep_ns:
        return _uninterruptible(span, mine)
    if (more_ns := _more_held_up_ns(mine, others)) >= _LEAST_SHARE * asleep_ns:
        text = (
            f"its control group waited for I/O and did nothing else for {brief(round(more_ns))} longer than the others'"
        )
        return DiskSleep(is_for_disk=True, text=text)
    if mine.machine_io_ns is not None and mine.machine_io_ns >= _LEAST_SHARE * asleep_ns:
        waited = f"processes of its machine waited for I/O for {brief(round(mine.machine_io_ns))}"
        return DiskSleep(is_for_disk=False, lines=(f"a data loader that reads is not excluded: {waited}",))
    return DiskSleep(is_for_disk=False)


def _uninterruptible(span: LateSpan, mine: RankTimes) -> DiskSleep:
    seen = f"{mine.disk_share:.0%} of the readings"
    if mine.machine_io_ns is None:
        return DiskSleep(is_for_disk=True, text=seen, lines=(f"not confirmed by I/O pressure: {mine.why_no_io}",))
    if mine.machine_io_ns < _MARGIN * _least_pressure_ns(span, mine):
        counted = f"its machine counted I/O pressure of only {brief(round(mine.machine_io_ns))}"
        line = f"its sleep was uninterruptible ({seen}), but {counted}: a file server, a lock, or a disk"
        return DiskSleep(is_for_disk=False, lines=(line,))
    return DiskSleep(is_for_disk=True, text=seen)


def _least_pressure_ns(span: LateSpan, mine: RankTimes) -> float:
    """What one thread leaves that sleeps for I/O as long as this one: all CPUs are busy, and its own is idle apart from
    that."""
    slept_ns = mine.disk_share * span.lasted_ns
    return slept_ns**2 / (max(mine.machine_cpus, 1) * span.lasted_ns)


def _more_held_up_ns(mine: RankTimes, others: Sequence[RankTimes]) -> float:
    """Than any other: a rank of the same control group has the same pressure. 0 where it is not known of each."""
    theirs = [each.group_io_ns for each in others if each.group_io_ns is not None]
    if mine.group_io_ns is None or not theirs or len(theirs) < len(others):
        return 0.0
    return mine.group_io_ns - max(theirs)
