"""What a capsule holds of a job's readings: its rank's and its machine's, over its time, and nobody else's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.excerpt import excerpt, write_excerpt
from prismdbg.telemetry.reader import read_telemetry
from prismdbg.telemetry.sensor import Kind, Sensor
from prismdbg.telemetry.series import Series, Telemetry

OTHERS = ("process 9 (secret.py)", names.SAMPLER)
SUBJECTS = ("rank 3", "rank 31", "rank 3.1", "cpu 0", "cpu 1", "gpu A", "gpu B", "host", *OTHERS)


def job() -> Telemetry:
    times = np.arange(0, 1000, 100, dtype=np.int64)
    series = {}
    for subject in SUBJECTS:
        sensor = Sensor(subject, names.CPU_TIME, "ns", Kind.COUNTER)
        series[subject, names.CPU_TIME] = Series(sensor=sensor, times_ns=times, values=times * 2)
    cpus = Sensor("rank 3", names.LAST_CPU, "cpu", Kind.GAUGE)
    used = np.array([0, 0, 1, 1, 1, 1, 1, 1, 0, 0], dtype=np.int64)
    series["rank 3", names.LAST_CPU] = Series(sensor=cpus, times_ns=times, values=used)
    return Telemetry(
        period_ns=100,
        wall_offset_ns=7,
        series=series,
        missing={("host", "energy"): "no RAPL", ("gpu B", "power"): "no"},
        texts={("rank 3", names.DEVICE): "A", ("rank 31", names.DEVICE): "B"},
    )


def test_it_is_of_the_rank_and_of_what_it_used_alone() -> None:
    found = excerpt(job(), "3", 350, 550)
    assert {subject for subject, _ in found.series} == {"rank 3", "cpu 1", "gpu A", "host"}
    assert set(found.missing) == {("host", "energy")}
    assert set(found.texts) == {("rank 3", names.DEVICE)}


def test_series_reach_around_the_span() -> None:
    assert excerpt(job(), "3", 350, 550).series["rank 3", names.CPU_TIME].times_ns.tolist() == [300, 400, 500, 600]
    assert excerpt(job(), "3", -50, 2000).series["rank 3", names.CPU_TIME].times_ns.tolist() == list(
        range(0, 1000, 100)
    )


def test_a_part_that_could_not_be_read_is_said() -> None:
    damaged = Telemetry(period_ns=100, wall_offset_ns=0, damage="x is damaged at byte 9")
    assert excerpt(damaged, "3", 0, 1).missing[names.SAMPLER, "readings"].endswith("x is damaged at byte 9")


@pytest.mark.parametrize("at_once", [3, 100_000])
def test_what_is_written_is_read_again(tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prismdbg.telemetry.excerpt._READINGS_AT_ONCE", at_once)
    kept = excerpt(job(), "3", 350, 550)
    write_excerpt(tmp_path, kept)
    found = read_telemetry(tmp_path)
    assert found is not None and not found.damage and not found.dropped
    assert (found.period_ns, found.wall_offset_ns, found.texts) == (kept.period_ns, kept.wall_offset_ns, kept.texts)
    assert found.missing == kept.missing
    for key, series in kept.series.items():
        assert found.series[key].times_ns.tolist() == series.times_ns.tolist()
        assert found.series[key].values.tolist() == series.values.tolist()
