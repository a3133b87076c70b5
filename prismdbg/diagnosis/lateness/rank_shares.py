"""What readings of sensors say of one rank's time in a span: it ran, it waited for a CPU, a quota held it, ..."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.sensor import cpu_subject, rank_subject
from prismdbg.telemetry.series import Series, Telemetry

Span = tuple[int, int]
_LEAST_READ = 0.75  # of a span: a counter that was not read at its end has grown by too little there


@dataclass(frozen=True, slots=True)
class NotAvailable:
    """A sensor without which nothing can be said, and why there are no readings of it."""

    sensor: str
    subject: str
    why: str

    @property
    def text(self) -> str:
        return f"{self.sensor} of {self.subject} is not available: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimes:
    """Nanoseconds of the main thread in a span. quota_ns: a CPU quota held it; waited_ns: in the run queue, apart from
    that. other_threads_waited_ns: all others together, in run queues. stolen_ns: of the CPU that it was on, by the
    hypervisor. disk_share: of the looks at it, how often it slept for a disk. in_collectives_ns: that calls held it;
    in_others_ns: calls that are not collectives of the group. cpus: those that it was seen on, of its node. clock:
    their mean one, None where it was not read.

    machine_io_ns: anybody of its machine, of machine_cpus CPUs, waited for I/O, by the kernel; group_io_ns: its control
    group did and ran nothing. None where that was not read, of the machine for the reason `why_no_io`."""

    ran_ns: float
    waited_ns: float
    quota_ns: float
    stolen_ns: float
    other_threads_waited_ns: float
    disk_share: float
    in_collectives_ns: float
    cpus: tuple[int, ...]
    clock: float | None = None
    in_others_ns: float = 0.0
    machine_io_ns: float | None = None
    machine_cpus: int = 1
    why_no_io: str = ""
    group_io_ns: float | None = None

    def asleep_ns(self, lasted_ns: int) -> float:
        """Of a span, what is left: it neither ran nor waited for a CPU, and was not in a collective."""
        return max(lasted_ns - self.ran_ns - self.waited_ns - self.quota_ns - self.in_collectives_ns, 0.0)


def times_of(telemetry: Telemetry, rank_folder: str, span: Span, in_collectives_ns: float) -> RankTimes | NotAvailable:
    """`NotAvailable` for the first sensor that is missing: a time that is not known is not 0."""
    subject = rank_subject(rank_folder)
    found: dict[str, Series] = {}
    for name in (names.CPU_TIME, names.RUN_QUEUE_WAIT, names.QUOTA_THROTTLED, names.LAST_CPU, names.DISK_SLEEP):
        series = telemetry.find(subject, name)
        if series is None or not series.covers(*span):
            return NotAvailable(name, subject, telemetry.why_missing(subject, name))
        found[name] = series
    cpus = found[names.LAST_CPU].within(*span)
    used = tuple(sorted(set(cpus.tolist())))
    stolen = _stolen(telemetry, cpus.tolist(), span)
    if isinstance(stolen, NotAvailable):
        return stolen
    waited_ns = found[names.RUN_QUEUE_WAIT].growth(*span)
    # A thread that is held by a quota is in the run queue. The counter is of all threads: CPUs held at once are added.
    quota_ns = min(found[names.QUOTA_THROTTLED].growth(*span), waited_ns, float(span[1] - span[0]))
    threads = telemetry.find(subject, names.THREADS_RUN_QUEUE_WAIT)
    all_waited_ns = threads.growth(*span) if threads is not None and threads.covers(*span) else waited_ns
    return RankTimes(
        ran_ns=found[names.CPU_TIME].growth(*span),
        waited_ns=waited_ns - quota_ns,
        quota_ns=quota_ns,
        stolen_ns=stolen,
        other_threads_waited_ns=max(all_waited_ns - waited_ns, 0.0),
        disk_share=float(np.mean(found[names.DISK_SLEEP].within(*span))),
        in_collectives_ns=in_collectives_ns,
        cpus=used,
        clock=_clock(telemetry, used, span),
        machine_io_ns=_grown(telemetry, names.HOST, names.IO_PRESSURE, span),
        machine_cpus=sum(name == names.STOLEN_TIME for _, name in telemetry.series),
        why_no_io=_why_no_io(telemetry),
        group_io_ns=_grown(telemetry, subject, names.GROUP_IO_PRESSURE, span),
    )


def _grown(telemetry: Telemetry, subject: str, name: str, span: Span) -> float | None:
    """Of a counter without which something can be said all the same; None where it was not read all the time."""
    series = telemetry.find(subject, name)
    if series is None or not series.covers(*span, least_share=_LEAST_READ):
        return None
    return series.growth(*span)


def _why_no_io(telemetry: Telemetry) -> str:
    """The sensor and its reason. A kernel that has no file of it is missing under the name of the file."""
    name = names.IO_PRESSURE
    why = telemetry.missing.get((names.HOST, names.NO_IO_PRESSURE)) or telemetry.why_missing(names.HOST, name)
    return NotAvailable(name, names.HOST, why).text


def _stolen(telemetry: Telemetry, cpus: list[int], span: Span) -> float | NotAvailable:
    """By CPU, in proportion to how often the rank was seen on it."""
    stolen_ns = 0.0
    for cpu in sorted(set(cpus)):
        series = telemetry.find(cpu_subject(cpu), names.STOLEN_TIME)
        if series is None or not series.covers(*span):
            subject = cpu_subject(cpu) if (names.HOST, names.STOLEN_TIME) not in telemetry.missing else names.HOST
            return NotAvailable(names.STOLEN_TIME, subject, telemetry.why_missing(subject, names.STOLEN_TIME))
        stolen_ns += series.growth(*span) * cpus.count(cpu) / len(cpus)
    return stolen_ns


def _clock(telemetry: Telemetry, cpus: tuple[int, ...], span: Span) -> float | None:
    read = (telemetry.find(cpu_subject(cpu), names.CPU_FREQUENCY) for cpu in cpus)
    levels = [series.within(*span) for series in read if series is not None]
    values = np.concatenate(levels) if levels else np.zeros(0)
    return float(values.mean()) if len(values) else None
