"""Telemetry in a Perfetto trace: beside the calls of a RUN or a capsule, and alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from capsules import make_capsule
from click.testing import CliRunner
from test_perfetto_export import WALL_NS, Read, exported, read
from tiny_log import write_training

from prismdbg.capsule import layout
from prismdbg.cli.main import cli
from prismdbg.exporters.perfetto import write_trace
from prismdbg.log.rank_log import columns_of, rank_log, read_log
from prismdbg.telemetry.file_format import segment_name
from prismdbg.telemetry.reader import read_telemetry
from prismdbg.telemetry.sensor import Kind, Provenance, Sensor
from prismdbg.telemetry.writer import TelemetryWriter

RAN = Sensor("rank 0", "cpu_time", "ns", Kind.COUNTER)
POWER = Sensor("gpu GPU-1", "power", "mW", Kind.GAUGE, Provenance.FAKE)
RUN_RATES = {("rank 0", "cpu_time"): [(WALL_NS + 2000, 0.25e9), (WALL_NS + 3000, 0.75e9)]}


def readings(folder: Path) -> None:
    """From before the first call of a TinyLog's rank, which is at 2000 by its clock."""
    into = TelemetryWriter(folder, {"format": 1, "period_ns": 1000, "wall_offset_ns": WALL_NS})
    for time_ns, ran, power in ((1000, 0, 7), (2000, 100, 8), (3000, 350, 9), (4000, 1100, -1)):
        into.now_ns = time_ns
        into.reading(RAN, ran)
        into.reading(POWER, power)
    into.missing("host", "energy", "no RAPL zone")
    into.missing("host", "temperature", "no thermal zone")
    into.close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_training(tmp_path / "run" / "ranks" / "0", steps=1)
    (tmp_path / "run" / "run.json").write_text("{}")
    readings(tmp_path / "run" / "telemetry")
    return tmp_path / "run"


def alone(run: Path) -> Read:
    out = run.parent / "telemetry.pftrace"
    ran = CliRunner().invoke(cli, ["telemetry", str(run), "--export", "perfetto", "-o", str(out)])
    assert ran.exit_code == 0, ran.output
    return read(out)


def test_a_run_has_its_sensors_from_its_first_call_on(run: Path) -> None:
    found = exported(run)
    assert found.of(0, "world"), "on the track that has the calls"
    assert found.counters() == RUN_RATES | {
        ("gpu GPU-1", "power (fake)"): [(WALL_NS + 2000, 8), (WALL_NS + 3000, 9), (WALL_NS + 4000, -1)]
    }
    assert {found.tracks[track][0]: found.units[track] for track in found.counts} == {
        "cpu_time": "ns/s",
        "power (fake)": "mW",
    }
    missing = {(*found.path(seen.track), seen.name): seen.about["why"] for seen in found.instants}
    assert missing == {
        ("host", "missing sensors", "energy"): "no RAPL zone",
        ("host", "missing sensors", "temperature"): "no thermal zone",
    }


def test_the_command_of_telemetry_writes_all_readings(run: Path) -> None:
    found = alone(run)
    assert found.slices == []
    counters = found.counters()
    assert counters["rank 0", "cpu_time"] == [(WALL_NS + 1000, 0.1e9), *RUN_RATES["rank 0", "cpu_time"]]
    assert [power for _, power in counters["gpu GPU-1", "power (fake)"]] == [7, 8, 9, -1]
    assert {seen.begin_ns for seen in found.instants} == {WALL_NS + 1000}, "not in 1970"


def test_readings_of_several_nodes_are_shown_by_the_clocks_of_their_ranks(tmp_path: Path) -> None:
    """As a diagnosis puts the ranks on one clock: what a node's own wall clock says is of no account."""
    logs = {}
    for rank in range(2):
        write_training(tmp_path / str(rank), rank=rank, steps=1)
        columns = columns_of(read_log(tmp_path / str(rank)))
        logs[rank] = rank_log(replace(columns, wall_offset_ns=WALL_NS + rank * 10))
    nodes, telemetry = {0: "n1", 1: "n2"}, {}
    for node in ("n1", "n2", "n3"):
        readings(tmp_path / node)
        found = read_telemetry(tmp_path / node)
        assert found is not None
        telemetry[node] = found
    with (tmp_path / "out").open("wb") as file:
        written = write_trace(logs, {}, file, last=100, telemetry=telemetry, nodes=nodes)
    assert written.sensors == 6
    found = read(tmp_path / "out")
    begins = sorted(points[0][0] - WALL_NS for points in found.counts.values())
    assert begins == [2000, 2000, 2000, 2000, 2010, 2010]
    assert {found.path(seen.track)[0] for seen in found.instants} == {"host on n1", "host on n2", "host on n3"}


def test_a_capsule_has_those_that_were_packed_with_it(tmp_path: Path) -> None:
    readings(tmp_path / "readings")
    capsule = make_capsule(tmp_path / "capsule")
    (capsule.path / layout.TELEMETRY).mkdir()
    data = (tmp_path / "readings" / segment_name(1)).read_bytes()
    (capsule.path / layout.TELEMETRY / segment_name(1)).write_bytes(data)
    assert exported(capsule.path).counters()["rank 0", "cpu_time"] == RUN_RATES["rank 0", "cpu_time"]


def test_readings_that_are_damaged_are_said_and_the_rest_is_there(run: Path, tmp_path: Path) -> None:
    segment = run / "telemetry" / segment_name(1)
    segment.write_bytes(segment.read_bytes()[:-1] + b"x")
    arguments = ["export", str(run), "--format", "perfetto", "-o", str(tmp_path / "out")]
    said = CliRunner().invoke(cli, arguments)
    assert said.exit_code == 0
    assert "telemetry was read only in part" in said.output, said.output
    assert read(tmp_path / "out").of(0, "world")
