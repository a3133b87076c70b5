"""The readings that concern one rank over a span, as a capsule holds them: of the rank, of the CPUs and GPUs that it
used, and of the machine. Other ranks and other processes, the sampler among them, are not in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.sensor import SAMPLER, cpu_subject, rank_subject
from prismdbg.telemetry.series import Series, Telemetry
from prismdbg.telemetry.writer import TelemetryWriter

_READINGS_AT_ONCE = 100_000  # a block has a size that every reader accepts
_HOLDS_ALL = 1 << 40  # of a segment: none is ever dropped


def excerpt(telemetry: Telemetry, rank_folder: str, begin_ns: int, end_ns: int) -> Telemetry:
    """`rank_folder`: the name of its log folder. Each series reaches from the reading before the span to the one after
    it. A sensor that has none in it is missing there."""
    kept = _subjects(telemetry, rank_folder, begin_ns, end_ns)
    of_it = {
        key: each for key, each in telemetry.series.items() if _concerns(key[0], kept) and key[0] != SAMPLER
    }  # what the sampler could not read concerns this rank, its own time does not
    cut = {key: _cut(each, begin_ns, end_ns) for key, each in of_it.items()}
    missing = {key: why for key, why in telemetry.missing.items() if _concerns(key[0], kept)}
    if telemetry.damage:
        missing[SAMPLER, "readings"] = f"read only in part: {telemetry.damage}"
    return replace(
        telemetry,
        series={key: each for key, each in cut.items() if len(each.times_ns)},
        missing=missing,
        texts={key: text for key, text in telemetry.texts.items() if _concerns(key[0], kept)},
        damage="",
        dropped=False,
    )


def write_excerpt(folder: Path, telemetry: Telemetry) -> None:
    """As the sampler writes. `OSError` where that is impossible."""
    about = {"format": 1, "period_ns": max(telemetry.period_ns, 1), "wall_offset_ns": telemetry.wall_offset_ns}
    into = TelemetryWriter(folder, about, segment_bytes=_HOLDS_ALL)
    for (subject, name), why in telemetry.missing.items():
        into.missing(subject, name, why)
    for (subject, name), text in telemetry.texts.items():
        into.text(subject, name, text)
    taken = 0
    for series in telemetry.series.values():
        for time_ns, value in zip(series.times_ns.tolist(), series.values.tolist(), strict=True):
            into.now_ns = time_ns
            into.reading(series.sensor, value)
            taken += 1
            if taken % _READINGS_AT_ONCE == 0:
                into.flush()
    into.close()


def _subjects(telemetry: Telemetry, rank_folder: str, begin_ns: int, end_ns: int) -> set[str]:
    rank = rank_subject(rank_folder)
    cpus = telemetry.find(rank, names.LAST_CPU)
    used = np.unique(_cut(cpus, begin_ns, end_ns).values).tolist() if cpus is not None else []
    devices = filter(None, telemetry.texts.get((rank, names.DEVICE), "").split(","))
    return {rank, *map(cpu_subject, used), *(f"gpu {uuid}" for uuid in devices)}


def _concerns(subject: str, kept: set[str]) -> bool:
    return subject in kept or not subject.startswith(("rank ", "cpu ", "gpu ", "process "))


def _cut(series: Series, begin_ns: int, end_ns: int) -> Series:
    first, beyond = np.searchsorted(series.times_ns, [begin_ns, end_ns + 1]).tolist()
    part = slice(max(first - 1, 0), beyond + 1)
    return replace(series, times_ns=series.times_ns[part], values=series.values[part])
