"""`Recording.telemetry`: series of sensors, missing ones with their reason, and the examples of its documentation."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest
from capsules import make_capsule
from tiny_log import write_training

import prismdbg
from prismdbg.api import telemetry as api
from prismdbg.capsule import layout
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.telemetry.file_format import segment_name
from prismdbg.telemetry.sensor import Kind, Provenance, Sensor
from prismdbg.telemetry.series import Telemetry
from prismdbg.telemetry.writer import TelemetryWriter

RAN = Sensor("rank 0", "cpu_time", "ns", Kind.COUNTER)
POWER = Sensor("gpu GPU-1", "power", "mW", Kind.GAUGE, Provenance.FAKE)
WALL_NS = 10**18


def readings(folder: Path) -> None:
    into = TelemetryWriter(folder, {"format": 1, "period_ns": 1000, "wall_offset_ns": WALL_NS})
    for second in range(3):
        into.now_ns = second * 1_000_000_000
        into.reading(RAN, second * 500_000_000)
        into.reading(POWER, 250_000)
    into.missing("host", "energy", "no RAPL zone")
    into.text("rank 0", "device", "GPU-1")
    into.close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_training(tmp_path / "RUN" / "ranks" / "0")
    readings(tmp_path / "RUN" / "telemetry")
    return tmp_path / "RUN"


def test_the_examples_are_right(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    found = doctest.testmod(api, globs={"prismdbg": prismdbg})
    assert (found.attempted, found.failed) == (4, 0)


def test_readings_are_what_was_read(run: Path) -> None:
    sensors = prismdbg.open(run).telemetry()
    assert list(sensors) == [("rank 0", "cpu_time"), ("gpu GPU-1", "power")]
    ran, power = sensors.values()
    assert ran.times_ns.tolist() == [WALL_NS, WALL_NS + 10**9, WALL_NS + 2 * 10**9]
    assert ran.values.tolist() == [0, 500_000_000, 1_000_000_000]
    assert (ran.unit, ran.is_counter, ran.is_fake) == ("ns", True, False)
    assert (power.unit, power.is_counter, power.is_fake) == ("mW", False, True)
    assert sensors.texts == {("rank 0", "device"): "GPU-1"} and sensors.damage == ""
    with pytest.raises(UsageError, match="power of gpu GPU-1 is a gauge"):
        power.rates()


def test_a_sensor_without_readings_is_an_error_with_the_reason(run: Path) -> None:
    sensors = prismdbg.open(run).telemetry()
    assert ("host", "energy") not in sensors and ("rank 0", "cpu_time") in sensors
    with pytest.raises(UsageError, match="no readings of energy of host: no RAPL zone"):
        sensors["host", "energy"]
    with pytest.raises(UsageError, match="no readings of clock of host: it was never read"):
        sensors["host", "clock"]


def test_it_behaves_as_a_mapping(run: Path) -> None:
    sensors = prismdbg.open(run).telemetry()
    assert sensors.get(("host", "energy")) is None and sensors.get(("rank 0", "cpu_time")) is not None
    ran = sensors["rank 0", "cpu_time"]
    assert ran == ran and ran != sensors["gpu GPU-1", "power"]
    with pytest.raises(KeyError) as error:
        sensors["host", "energy"]
    assert str(error.value) == "no readings of energy of host: no RAPL zone"


def test_without_readings_of_ranks_no_rank_is_proposed() -> None:
    with pytest.raises(UsageError, match="no telemetry of rank 0") as error:
        api.Sensors(Telemetry(period_ns=1, wall_offset_ns=0)).of_rank(0)
    assert error.value.hint == "leave the rank out: no rank has readings"


def test_a_rank_has_its_devices(run: Path) -> None:
    sensors = prismdbg.open(run).telemetry().of_rank(0)
    assert sensors.subjects == ("rank 0", "gpu GPU-1") and sensors.missing == {}
    with pytest.raises(UsageError, match="no telemetry of rank 9"):
        sensors.of_rank(9)


def test_a_table_has_a_row_for_each_reading(run: Path) -> None:
    table = prismdbg.open(run).telemetry().to_pandas()
    assert len(table) == 6
    assert table[table.sensor == "power"].value.tolist() == [250_000] * 3
    assert table[table.subject == "rank 0"].time_ns.max() == WALL_NS + 2 * 10**9


def test_readings_of_one_time_have_no_rate(tmp_path: Path) -> None:
    write_training(tmp_path / "ranks" / "0")
    into = TelemetryWriter(tmp_path / "telemetry", {"format": 1, "period_ns": 1, "wall_offset_ns": 0})
    for time_ns in (5, 5, 6):
        into.now_ns = time_ns
        into.reading(RAN, time_ns)
    into.close()
    first, second = prismdbg.open(tmp_path).telemetry()["rank 0", "cpu_time"].rates()
    assert np.isnan(first) and second == 1e9


def test_several_nodes_are_one(run: Path) -> None:
    (run / "telemetry" / segment_name(1)).unlink()
    for node in ("n1", "n2"):
        folder = run / "nodes" / node
        folder.mkdir(parents=True)
        (folder / "node.json").write_text("{}")
        readings(run / "telemetry" / node)
    assert "host on n2" in prismdbg.open(run).telemetry().subjects


def test_a_capsule_has_those_of_its_rank(tmp_path: Path) -> None:
    readings(tmp_path / "readings")
    capsule = make_capsule(tmp_path / "capsule")
    (tmp_path / "readings").rename(capsule.path / layout.TELEMETRY)
    with prismdbg.open(capsule.path) as recording:
        assert len(recording.telemetry()["rank 0", "cpu_time"].values) == 3


def test_without_readings_it_is_said(tmp_path: Path, run: Path) -> None:
    write_training(tmp_path / "bare" / "ranks" / "0")
    with pytest.raises(UsageError, match="contains no telemetry"):
        prismdbg.open(tmp_path / "bare").telemetry()
    (run / "telemetry" / segment_name(1)).write_bytes(b"x" * 100)
    with pytest.raises(CapsuleError, match="no telemetry can be read"):
        prismdbg.open(run).telemetry()
