"""Telemetry as counters of a Perfetto trace: a track for each sensor, below one of what it is a sensor of.

A counter is drawn as its rate, from one reading to the next; a gauge as it was read. What is missing is an instant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import IO

from prismdbg.exporters.perfetto_packets import Packets
from prismdbg.telemetry.export import rank_of
from prismdbg.telemetry.sensor import Kind, Provenance, Sensor
from prismdbg.telemetry.series import Series, Telemetry, on_node

_PLACE = 100  # of a sensor: below the collectives of its rank
_LAST_PLACE = 1 << 30  # of what is no rank: below all ranks


def write_file(telemetry: Telemetry, file: IO[bytes]) -> int:
    """A trace of nothing else. Returns how many sensors it has."""
    packets = Packets(file)
    begin_ns = _first_ns(telemetry) + telemetry.wall_offset_ns
    packets.clock(begin_ns)
    return TelemetryTracks(packets, {}).write(telemetry, offset_ns=telemetry.wall_offset_ns, since_ns=begin_ns)


class TelemetryTracks:
    """`ranks`: tracks that are there already, by rank; every other subject gets one."""

    def __init__(self, packets: Packets, ranks: Mapping[int, int]) -> None:
        self._packets = packets
        self._ranks = ranks
        self._tracks: dict[str, int] = {}

    def write(self, telemetry: Telemetry, *, offset_ns: int, since_ns: int, node: str = "") -> int:
        """Readings since `since_ns`. `offset_ns`: from the clock of the readings to nanoseconds since 1970. Returns how
        many sensors have one."""
        written = 0
        for (subject, _), series in telemetry.series.items():
            points = [(time_ns + offset_ns, value) for time_ns, value in _points(series)]
            if shown := [point for point in points if point[0] >= since_ns]:
                self._write_points(on_node(subject, node), series.sensor, shown)
                written += 1
        for subject, reasons in _missing(telemetry).items():
            track = self._packets.track("missing sensors", self._subject(on_node(subject, node)), place=_PLACE + 1)
            for name, why in reasons.items():
                self._packets.instant(track, since_ns, name, {"why": why})
        return written

    def _write_points(self, subject: str, sensor: Sensor, points: list[tuple[int, float]]) -> None:
        fake = "" if sensor.provenance is Provenance.MEASURED else f" ({sensor.provenance})"
        unit = f"{sensor.unit}/s" if sensor.kind is Kind.COUNTER else sensor.unit
        track = self._packets.counter(f"{sensor.name}{fake}", self._subject(subject), place=_PLACE, unit=unit)
        for time_ns, value in points:
            self._packets.count(track, time_ns, value)

    def _subject(self, subject: str) -> int:
        rank = rank_of(subject)
        if rank is not None and rank in self._ranks:
            return self._ranks[rank]
        if subject not in self._tracks:
            self._tracks[subject] = self._packets.track(subject, place=_LAST_PLACE)
        return self._tracks[subject]


def _points(series: Series) -> Iterator[tuple[int, float]]:
    readings = list(zip(series.times_ns.tolist(), series.values.tolist(), strict=True))
    if series.sensor.kind is Kind.GAUGE:
        yield from readings
        return
    for (begin_ns, before), (end_ns, after) in pairwise(readings):
        if end_ns > begin_ns:
            yield begin_ns, (after - before) / (end_ns - begin_ns) * 1e9


def _first_ns(telemetry: Telemetry) -> int:
    return min((int(series.times_ns[0]) for series in telemetry.series.values() if len(series.times_ns)), default=0)


def _missing(telemetry: Telemetry) -> dict[str, dict[str, str]]:
    """Why, by subject and by the sensor's name."""
    found: dict[str, dict[str, str]] = {}
    for (subject, name), why in telemetry.missing.items():
        found.setdefault(subject, {})[name] = why
    return found
