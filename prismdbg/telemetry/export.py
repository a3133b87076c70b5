"""Readings for other tools, and those of one rank."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.sensor import Kind
from prismdbg.telemetry.series import Telemetry

_COLUMNS = ("wall_ns", "time_ns", "subject", "sensor", "value", "unit", "kind", "provenance")


def ranks(telemetry: Telemetry) -> list[int]:
    found = {rank for subject in telemetry.subjects() if (rank := _rank(subject)) is not None}
    return sorted(found)


def subjects_of_rank(telemetry: Telemetry, rank: int) -> set[str]:
    """All attempts of the rank, and the devices that they computed on; empty where nothing is known of it."""
    own = {subject for subject in telemetry.subjects() if _rank(subject) == rank}
    devices = (telemetry.texts.get((subject, names.DEVICE), "") for subject in own)
    return own | {f"gpu {uuid}" for listed in devices for uuid in listed.split(",") if uuid}


def only(telemetry: Telemetry, subjects: Iterable[str]) -> Telemetry:
    kept = set(subjects)
    return replace(
        telemetry,
        series={key: series for key, series in telemetry.series.items() if key[0] in kept},
        missing={key: why for key, why in telemetry.missing.items() if key[0] in kept},
        texts={key: text for key, text in telemetry.texts.items() if key[0] in kept},
    )


def csv_lines(telemetry: Telemetry) -> Iterator[str]:
    """A line for each reading, sensor by sensor; missing sensors have none."""
    yield ",".join(_COLUMNS)
    for (subject, name), series in telemetry.series.items():
        sensor = series.sensor
        for time_ns, value in zip(series.times_ns.tolist(), series.values.tolist(), strict=True):
            row = (time_ns + telemetry.wall_offset_ns, time_ns, subject, name, value)
            yield _csv((*row, sensor.unit, str(sensor.kind), str(sensor.provenance)))


def perfetto_lines(telemetry: Telemetry) -> Iterator[str]:
    """JSON lines of one trace: a process for each subject, a counter track for each sensor. Counters are rates."""
    about = {
        "wall_offset_ns": telemetry.wall_offset_ns,
        "missing": [[*key, why] for key, why in telemetry.missing.items()],
    }
    yield '{"displayTimeUnit":"ms","otherData":' + json.dumps(about) + ',"traceEvents":['
    processes = {subject: number for number, subject in enumerate(telemetry.subjects(), 1)}
    titles = [
        {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": subject}}
        for subject, number in processes.items()
    ]
    yield ",\n".join(json.dumps(title) for title in titles)
    for (subject, name), series in telemetry.series.items():
        sensor = series.sensor
        fake = "" if sensor.provenance is names.Provenance.MEASURED else f", {sensor.provenance}"
        per_s = "/s" if sensor.kind is Kind.COUNTER else ""
        title = f"{name} ({sensor.unit}{per_s}{fake})"
        last: tuple[int, int] | None = None
        for time_ns, value in zip(series.times_ns.tolist(), series.values.tolist(), strict=True):
            shown = _rate(last, (time_ns, value)) if sensor.kind is Kind.COUNTER else float(value)
            last = time_ns, value
            if shown is not None:
                event = {
                    "ph": "C",
                    "name": title,
                    "pid": processes[subject],
                    "ts": time_ns / 1000,
                    "args": {"value": shown},
                }
                yield "," + json.dumps(event, separators=(",", ":"))
    yield "]}"


def _rate(before: tuple[int, int] | None, now: tuple[int, int]) -> float | None:
    if before is None or now[0] <= before[0]:
        return None
    return (now[1] - before[1]) / (now[0] - before[0]) * 1e9


def _rank(subject: str) -> int | None:
    head, _, folder = subject.partition(" ")
    number = folder.partition(".")[0]
    return int(number) if head == "rank" and number.isdecimal() and len(number) < 9 else None


def _csv(row: tuple[object, ...]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(row)
    return line.getvalue()
