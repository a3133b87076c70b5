"""Who used the CPUs of a rank that waited for them, and how fast these CPUs were clocked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

import numpy as np

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness.late_span import LateSpan
from prismdbg.diagnosis.lateness.rank_shares import RankTimes
from prismdbg.model.durations import brief
from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.sensor import HOST, rank_subject
from prismdbg.telemetry.series import Telemetry

_SHOWN = 3
_LEAST_SHARE = 0.02  # of the span: others are not worth a line


def rivals(evidence: Evidence, telemetry: Telemetry, span: LateSpan, late: RankTimes) -> list[str]:
    """Processes and other ranks, by what they ran on the rank's CPUs, the most first: `process 71 (stress), 2.1 s`."""
    own = rank_subject(evidence.folder_name(span.rank))
    found = [(ran_ns, subject) for subject, ran_ns in _ran(telemetry, span, late, own)]
    found = [one for one in sorted(found, reverse=True) if one[0] >= _LEAST_SHARE * span.lasted_ns]
    return [f"{subject}, {brief(round(ran_ns))}" for ran_ns, subject in found[:_SHOWN]]


def nobody(telemetry: Telemetry) -> str:
    """Where there are no rivals: who was seen, and why not all were."""
    why = telemetry.missing.get((HOST, names.PROCESSES))
    return "no process was seen to use as much of it" + (f" ({why})" if why else "")


def _ran(telemetry: Telemetry, span: LateSpan, late: RankTimes, own: str) -> Iterator[tuple[str, float]]:
    begin_ns, end_ns = span.begin_ns, span.end_ns
    for (subject, name), series in telemetry.series.items():
        if name != names.CPU_TIME or subject == own or len(series.times_ns) < 2:
            continue
        cpus = telemetry.find(subject, names.LAST_CPU)
        seen = cpus.within(begin_ns, end_ns) if cpus is not None else np.zeros(0, dtype=np.int64)
        if len(seen):
            there = float(np.isin(seen, late.cpus).mean())
            yield subject, series.growth(begin_ns, end_ns) * there


def clock_ratio(late: RankTimes, others: Sequence[RankTimes]) -> float | None:
    """The mean clock of its CPUs to that of the others'; None where that is not known."""
    theirs = [each.clock for each in others if each.clock is not None]
    return late.clock / mean(theirs) if late.clock is not None and theirs else None


def why_no_clock(telemetry: Telemetry) -> str:
    """Empty where the clocks of CPUs were read."""
    if any(name == names.CPU_FREQUENCY for _, name in telemetry.series):
        return ""
    why = telemetry.why_missing(HOST, names.CPU_FREQUENCY)
    return f"{names.CPU_FREQUENCY} is not available: {why}"
