"""Readings for other tools, and those of one rank."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import replace

from prismdbg.errors import UsageError
from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.series import Telemetry

_COLUMNS = ("wall_ns", "time_ns", "subject", "sensor", "value", "unit", "kind", "provenance")


def ranks(telemetry: Telemetry) -> list[int]:
    found = {rank for subject in telemetry.subjects() if (rank := rank_of(subject)) is not None}
    return sorted(found)


def _subjects_of_rank(telemetry: Telemetry, rank: int) -> set[str]:
    """All attempts of the rank, and the devices that they computed on; empty where nothing is known of it."""
    own = {subject for subject in telemetry.subjects() if rank_of(subject) == rank}
    devices = (telemetry.texts.get((subject, names.DEVICE), "") for subject in own)
    return own | {f"gpu {uuid}" for listed in devices for uuid in listed.split(",") if uuid}


def of_rank(telemetry: Telemetry, rank: int) -> Telemetry:
    """Only the readings of the rank and of its devices. `UsageError` where there are none."""
    if not (kept := _subjects_of_rank(telemetry, rank)):
        known = ", ".join(map(str, ranks(telemetry)))
        hint = f"choose one of the ranks: {known}" if known else "leave the rank out: no rank has readings"
        raise UsageError(f"no telemetry of rank {rank}", hint=hint)
    return _only(telemetry, kept)


def _only(telemetry: Telemetry, subjects: Iterable[str]) -> Telemetry:
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


def rank_of(subject: str) -> int | None:
    """Of which rank it is, in any attempt; None where it is of none."""
    head, _, folder = subject.partition(" ")
    number = folder.partition(".")[0]
    return int(number) if head == "rank" and number.isdecimal() and len(number) < 9 else None


def _csv(row: tuple[object, ...]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(row)
    return line.getvalue()
