"""Readings of sensors for the timeline: which there are, and what each was over a span."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.sensor import SAMPLER, Kind
from prismdbg.telemetry.series import Series, Telemetry

Floats = NDArray[np.float64]
_FIRST = (  # those that say why a rank was late; then the others
    ("gpu", names.SM_CLOCK),
    ("gpu", "power"),
    ("gpu", "temperature"),
    ("rank", names.RUN_QUEUE_WAIT),
    ("rank", names.CPU_TIME),
    ("rank", names.QUOTA_THROTTLED),
    ("cpu", names.STOLEN_TIME),
)
_ORDER = {chosen: place for place, chosen in enumerate(_FIRST)}
TITLES = {  # beside a level there is room for few letters; all of the name is said when the sensor is chosen
    names.SM_CLOCK: "SM",
    names.RUN_QUEUE_WAIT: "queue",
    names.CPU_TIME: "CPU",
    names.QUOTA_THROTTLED: "quota",
    names.STOLEN_TIME: "stolen",
    names.THREADS_CPU_TIME: "CPUs",
    names.THREADS_RUN_QUEUE_WAIT: "queues",
    names.DISK_SLEEP: "disk",
    names.CPU_FREQUENCY: "clk",
    names.UTILIZATION: "use",
    names.GROUP_IO_PRESSURE: "grp io",
    "io_pressure_some": "io any",
    "io_pressure_full": "io all",
    "cpu_pressure_some": "CPU any",
    "memory_pressure_some": "mem any",
    "memory_pressure_full": "mem all",
    "tcp_retransmits": "resent",
    "bytes_sent": "tx",
    "bytes_recv": "rx",
    "errin": "rx errs",
    "errout": "tx errs",
    "dropin": "rx drop",
    "dropout": "tx drop",
    "temperature": "temp",
    "chip_temperature": "chip",
    "chip_power": "chip",
    "memory_temperature": "mem",
    "memory_clock": "mem",
    "energy": "drawn",
    "power_throttled": "capped",
    "thermal_throttled": "hot",
    "pcie_sent": "p>",
    "pcie_received": "p<",
    "nvlink_sent": "n>",
    "nvlink_received": "n<",
    "ecc_corrected": "ecc",
    "ecc_uncorrected": "ecc bad",
    "retired_pages_corrected": "retired",
    "retired_pages_uncorrected": "ret bad",
    "remapped_rows_corrected": "remaps",
    "remapped_rows_uncorrected": "map bad",
}
_NO_LEVELS = (names.LAST_CPU, names.THROTTLE_REASONS)  # numbers that mean something else
_UNITS = {
    "mW": (1e-3, "W"), "uW": (1e-6, "W"), "Hz": (1e-6, "MHz"), "m°C": (1e-3, "°C"),
}  # fmt: skip
_WATTS = {"mJ": 1e-3, "uJ": 1e-6}  # what these counters grow by in a second is a power
_PERCENT = {"share": 1.0, "%": 0.01}
_OF_1024 = ("B", "KiB", "MiB", "GiB", "TiB")
_OF_1000 = ("", "k", "M", "G", "T")
_LEAST_DIGITS = 999.5  # more digits are of the next unit


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
        name = self.series.sensor.name
        return TITLES.get(name, name.replace("_", " "))

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
        """`37%`, `312 W`, `1.2 KiB/s`, never longer than nine characters; a dash where it is not known."""
        unit, per_s = self.series.sensor.unit, "/s" if self._is_counter else ""
        if np.isnan(level):
            return "-"
        if self._is_share or unit in _PERCENT:
            return f"{level * (1.0 if self._is_share else _PERCENT[unit]):.0%}"
        if unit == "bytes":
            return f"{_short(level, 1024, _OF_1024)}{per_s}"
        if self._is_counter and unit in _WATTS:
            return f"{_digits(level * _WATTS[unit])} W"
        if self._is_counter:
            return f"{_short(level, 1000, _OF_1000)}{per_s}"
        factor, unit = _UNITS.get(unit, (1.0, unit))
        return f"{_digits(level * factor)} {unit}"


def _short(value: float, base: int, units: Sequence[str]) -> str:
    """At most three digits; sizes in the units in which people read them elsewhere (`figures.size`)."""
    last = len(units) - 1
    at = next((n for n in range(last) if abs(value) / base**n < _LEAST_DIGITS), last)
    return f"{_digits(value / base**at, 1)}{' ' if base == 1024 else ''}{units[at]}"


def _digits(value: float, most: int = 2) -> str:
    """`most`: digits after the point, of numbers below 10. No zeros at its end: `0.25`, `65.5`, `1980`."""
    digits = 0 if abs(value) >= 99.95 else most - 1 if abs(value) >= 9.95 else most
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


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
