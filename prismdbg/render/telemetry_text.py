"""Telemetry as a table for the terminal, and as JSON."""

from __future__ import annotations

from typing import Any

from prismdbg.model.plain_text import one_line
from prismdbg.model.plurals import counted
from prismdbg.render import console
from prismdbg.telemetry.sensor import CPU_TIME, Kind, Provenance
from prismdbg.telemetry.series import Series, Telemetry, level

_HEADER = ("of", "sensor", "minimum", "median", "maximum", "unit", "readings", "provenance")
_ORDER = ("rank", "gpu", "cpu", "host")  # of subjects
_PROCESSES = 5
_NUMBERS = ("minimum", "median", "maximum", "readings")
_UNITS = {("ns", Kind.COUNTER): (1e-6, "ms/s")}  # what people read, by the unit that is stored


def table(telemetry: Telemetry) -> str:
    shown, hidden = _shown(telemetry)
    rows = [_row(series) for series in shown]
    table = (
        [console.columns(_HEADER, rows, right=_NUMBERS, width=console.terminal_width())]
        if rows
        else ["no sensor was read"]
    )
    more = f"{counted(hidden, 'process', 'processes')} more that used a CPU: --export csv has all"
    lines = [more] if hidden else []
    lines += [f"{subject}: {name}: {text}" for (subject, name), text in telemetry.texts.items()]
    lines += [f"not available: {name} of {subject}: {why}" for (subject, name), why in telemetry.missing.items()]
    if telemetry.is_fake:
        lines.append("fake: read from a mock NVML library, not a measurement of any device")
    if telemetry.dropped:
        lines.append("older readings were dropped")
    if telemetry.damage:
        lines.append(f"incomplete: {telemetry.damage}")
    return "\n".join([*table, *(console.plain(one_line(line)) for line in lines)])


def _shown(telemetry: Telemetry) -> tuple[list[Series], int]:
    """Ranks first, and of other processes those that ran most; how many of them are left out."""
    by_subject: dict[str, list[Series]] = {}
    for (subject, _), series in telemetry.series.items():
        by_subject.setdefault(subject, []).append(series)
    processes = [subject for subject in by_subject if subject.startswith("process ")]
    busiest = sorted(processes, key=lambda subject: -_ran(by_subject[subject]))[:_PROCESSES]
    kept = sorted((s for s in by_subject if s not in processes), key=_order) + busiest
    return [series for subject in kept for series in by_subject[subject]], len(processes) - len(busiest)


def _order(subject: str) -> tuple[int, str]:
    kind = subject.partition(" ")[0]
    return (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), subject)


def _ran(series: list[Series]) -> int:
    return max((int(s.values[-1] - s.values[0]) for s in series if s.sensor.name == CPU_TIME), default=0)


def as_json(telemetry: Telemetry) -> dict[str, Any]:
    return {
        "period_ns": telemetry.period_ns,
        "dropped": telemetry.dropped,
        "damage": telemetry.damage,
        "sensors": [_entry(series) for series in telemetry.series.values()],
        "texts": [{"subject": s, "name": n, "text": text} for (s, n), text in telemetry.texts.items()],
        "missing": [{"subject": s, "sensor": n, "why": why} for (s, n), why in telemetry.missing.items()],
    }


def _row(series: Series) -> tuple[str, ...]:
    sensor = series.sensor
    per_s = "/s" if sensor.kind is Kind.COUNTER else ""
    factor, unit = _UNITS.get((sensor.unit, sensor.kind), (1.0, f"{sensor.unit}{per_s}"))
    values = [f"{value * factor:.4g}" for value in level(series)] if _has_level(series) else ["-"] * 3
    provenance = str(sensor.provenance) if sensor.provenance is not Provenance.MEASURED else ""
    return (sensor.subject, sensor.name, *values, unit, str(len(series.values)), provenance)


def _has_level(series: Series) -> bool:
    """Growth needs two readings."""
    return len(series.values) > 1 or series.sensor.kind is Kind.GAUGE


def _entry(series: Series) -> dict[str, Any]:
    sensor = series.sensor
    least, median, most = level(series) if _has_level(series) else (None, None, None)
    return {
        "subject": sensor.subject,
        "sensor": sensor.name,
        "unit": sensor.unit,
        "kind": str(sensor.kind),
        "provenance": str(sensor.provenance),
        "readings": len(series.values),
        "period_ns": series.period_ns,
        "least": least,
        "median": median,
        "most": most,
    }
