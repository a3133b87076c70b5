"""Readings of a job's sensors as columns, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from prismdbg.errors import CapsuleError
from prismdbg.telemetry.sensor import Kind, Provenance, Sensor

Ints = NDArray[np.int64]
_LONGEST_GAP = 3.0  # of the usual time between two readings: a sampler that waited for a CPU is no gap


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One sensor's readings in order of time. times_ns: of CLOCK_MONOTONIC, as the logs of ranks have it."""

    sensor: Sensor
    times_ns: Ints
    values: Ints

    @property
    def period_ns(self) -> int:
        """Between two readings, in the middle; 0 with fewer than two."""
        return int(np.median(np.diff(self.times_ns))) if len(self.times_ns) > 1 else 0

    def covers(self, begin_ns: int, end_ns: int, least_share: float = 0.0) -> bool:
        """Whether it was read all the time between: up to a gap of a few periods at either end. Of a span as short as
        these gaps, `least_share` of it must lie between readings."""
        slack_ns = _LONGEST_GAP * self.period_ns
        if len(self.times_ns) < 2:
            return False
        first_ns, last_ns = int(self.times_ns[0]), int(self.times_ns[-1])
        if min(last_ns, end_ns) - max(first_ns, begin_ns) < least_share * (end_ns - begin_ns):
            return False
        return first_ns <= begin_ns + slack_ns and last_ns >= end_ns - slack_ns

    def at(self, time_ns: int) -> float:
        return float(np.interp(time_ns, self.times_ns, self.values))

    def growth(self, begin_ns: int, end_ns: int) -> float:
        """Of a counter, between two times."""
        return self.at(end_ns) - self.at(begin_ns)

    def within(self, begin_ns: int, end_ns: int) -> Ints:
        """The readings between two times, both included."""
        first, beyond = np.searchsorted(self.times_ns, [begin_ns, end_ns + 1])
        return self.values[first:beyond]


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """missing: why a sensor has no readings, by subject and name. texts: what is no number, as a rank's devices.
    damage: why the rest was not read; empty where all was. dropped: whether older readings were removed."""

    period_ns: int
    wall_offset_ns: int
    series: Mapping[tuple[str, str], Series] = field(default_factory=dict)
    missing: Mapping[tuple[str, str], str] = field(default_factory=dict)
    texts: Mapping[tuple[str, str], str] = field(default_factory=dict)
    damage: str = ""
    dropped: bool = False

    def find(self, subject: str, name: str) -> Series | None:
        return self.series.get((subject, name))

    def why_missing(self, subject: str, name: str) -> str:
        """Where `find` gives nothing, or nothing for the time that is asked about."""
        if why := self.missing.get((subject, name)):
            return why
        return "no readings of that time" if (subject, name) in self.series else "it was never read"

    @property
    def is_fake(self) -> bool:
        return any(series.sensor.provenance is Provenance.FAKE for series in self.series.values())

    def subjects(self) -> list[str]:
        """In the order in which they were first read."""
        return list(dict.fromkeys(subject for subject, _ in (*self.series, *self.missing)))


def readable(telemetry: Telemetry) -> Telemetry:
    """`CapsuleError` where nothing of it can be read."""
    if not telemetry.period_ns:
        raise CapsuleError(
            f"no telemetry can be read: {telemetry.damage}", hint="record the job again: the file is damaged"
        )
    return telemetry


def merged(nodes: Mapping[str, Telemetry]) -> Telemetry:
    """Of several nodes as of one: `cpu 0 on n2`, with times by the clock of the first node. The nodes' wall clocks, by
    which times of different nodes are compared, may differ."""
    first = next(iter(nodes.values()))
    series: dict[tuple[str, str], Series] = {}
    missing: dict[tuple[str, str], str] = {}
    texts: dict[tuple[str, str], str] = {}
    damage = []
    for node, found in nodes.items():
        later_ns = found.wall_offset_ns - first.wall_offset_ns
        for (subject, name), each in found.series.items():
            sensor = replace(each.sensor, subject=on_node(subject, node))
            series[sensor.subject, name] = replace(each, sensor=sensor, times_ns=each.times_ns + later_ns)
        missing |= {(on_node(subject, node), name): why for (subject, name), why in found.missing.items()}
        texts |= {(on_node(subject, node), name): text for (subject, name), text in found.texts.items()}
        damage += [found.damage] if found.damage else []
    return Telemetry(
        period_ns=max(found.period_ns for found in nodes.values()),
        wall_offset_ns=first.wall_offset_ns,
        series=series,
        missing=missing,
        texts=texts,
        damage="; ".join(damage),
        dropped=any(found.dropped for found in nodes.values()),
    )


def on_node(subject: str, node: str) -> str:
    """A rank and a GPU have names that are their own in the job."""
    return subject if not node or subject.startswith(("rank ", "gpu ")) else f"{subject} on {node}"


def level(series: Series) -> tuple[float, float, float]:
    """Least, middle and most of a gauge, or of a counter's growth in a second."""
    values = series.values.astype(np.float64)
    if series.sensor.kind is Kind.COUNTER:
        if len(values) < 2:
            return (0.0, 0.0, 0.0)
        values = np.diff(values) / np.maximum(np.diff(series.times_ns), 1) * 1e9
    return float(values.min()), float(np.median(values)), float(values.max())
