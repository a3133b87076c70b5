"""Readings of sensors for the timeline: which there are, and what each was over a span."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.sensor import SAMPLER, Kind
from prismdbg.telemetry.series import Series, Telemetry

Floats = NDArray[np.float64]
_FIRST = (  # those that say why a rank was late; then the others
    ("gpu", names.SM_CLOCK, "SM clock"),
    ("gpu", "power", "power"),
    ("gpu", "temperature", "GPU temp"),
    ("rank", names.RUN_QUEUE_WAIT, "queue"),
    ("rank", names.CPU_TIME, "CPU"),
    ("rank", names.QUOTA_THROTTLED, "CPU quota"),
    ("cpu", names.STOLEN_TIME, "stolen"),
)
_ORDER = {(kind, name): place for place, (kind, name, _) in enumerate(_FIRST)}
_TITLES = {(kind, name): title for kind, name, title in _FIRST}
_NO_LEVELS = (names.LAST_CPU, names.THROTTLE_REASONS)  # numbers that mean something else
_UNITS = {"mW": (1e-3, "W"), "Hz": (1e-6, "MHz"), "m°C": (1e-3, "°C"), "bytes": (1e-6, "MB")}


class SensorRow:
    """One sensor: of a counter its growth, in a time that is counted as a share of that time. Sums are made once: it is
    asked at each drawing."""

    def __init__(self, series: Series) -> None:
        self.series = series
        self._times, values = series.times_ns.astype(np.float64), series.values.astype(np.float64)
        self._is_counter = series.sensor.kind is Kind.COUNTER
        self._is_share = self._is_counter and series.sensor.unit == "ns"
        self._summed: Floats = values - values[0] if self._is_counter else _integral(self._times, values)
        levels = self.level(self._times[:-1], self._times[1:])
        self.most = max(float(np.nanmax(levels, initial=0.0)), 1.0 if self._is_share else 1e-9)
        """The largest between two readings, the scale's end; 1 at least for a share."""

    @property
    def title(self) -> str:
        sensor = self.series.sensor
        kind = sensor.subject.partition(" ")[0]
        return _TITLES.get((kind, sensor.name), sensor.name.replace("_", " "))

    @property
    def described(self) -> str:
        """`run_queue_wait of rank 3`, and what it is not."""
        sensor = self.series.sensor
        fake = "" if sensor.provenance is names.Provenance.MEASURED else f", {sensor.provenance}"
        return f"{sensor.name} of {sensor.subject}{fake}"

    def level(self, begin_ns: Floats, end_ns: Floats) -> Floats:
        """Means over spans; NaN where there are no readings."""
        times, summed = self._times, self._summed
        begin, end = np.clip(begin_ns, times[0], times[-1]), np.clip(end_ns, times[0], times[-1])
        lasted = end - begin
        grown = np.interp(end, times, summed) - np.interp(begin, times, summed)
        per_ns: Floats = np.divide(grown, lasted, out=np.full(len(grown), np.nan), where=lasted > 0)
        return per_ns if not self._is_counter or self._is_share else per_ns * 1e9

    def said(self, level: float) -> str:
        """`37%`, `312 W`; a dash where it is not known."""
        if np.isnan(level):
            return "-"
        if self._is_share:
            return f"{level:.0%}"
        factor, unit = _UNITS.get(self.series.sensor.unit, (1.0, self.series.sensor.unit))
        per_s = "/s" if self._is_counter else ""
        return f"{level * factor:.4g} {unit}{per_s}".strip()


def sensor_rows(telemetry: Telemetry | None) -> list[SensorRow]:
    """Those that can be drawn, the most telling first, and those that never change last."""
    if telemetry is None:
        return []
    drawn = [
        SensorRow(series)
        for (subject, name), series in telemetry.series.items()
        if name not in _NO_LEVELS and subject != SAMPLER and len(series.times_ns) > 1
    ]
    return sorted(drawn, key=_place)


def _place(row: SensorRow) -> tuple[bool, int]:
    sensor, values = row.series.sensor, row.series.values
    kind = sensor.subject.partition(" ")[0]
    return bool((values == values[0]).all()), _ORDER.get((kind, sensor.name), len(_ORDER))


def _integral(times: Floats, values: Floats) -> Floats:
    parts = np.diff(times) * (values[1:] + values[:-1]) / 2
    return np.concatenate(([0.0], np.cumsum(parts)))
