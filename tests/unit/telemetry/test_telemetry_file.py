"""Readings on disk: written, cut off, damaged, bounded, and read again."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from prismdbg.telemetry import file_format as fmt
from prismdbg.telemetry import reader
from prismdbg.telemetry.file_format import Record
from prismdbg.telemetry.reader import read_telemetry
from prismdbg.telemetry.sensor import Kind, Provenance, Sensor
from prismdbg.telemetry.series import Telemetry, merged
from prismdbg.telemetry.writer import TelemetryWriter, about

PERIOD_NS = 50_000_000
COUNTER = Sensor("rank 0", "cpu_time", "ns", Kind.COUNTER)
GAUGE = Sensor("gpu GPU-1", "power", "mW", Kind.GAUGE, Provenance.FAKE)


def writer(folder: Path, segment_bytes: int = fmt.SEGMENT_BYTES) -> TelemetryWriter:
    return TelemetryWriter(folder, about(PERIOD_NS), segment_bytes)


def fill(into: TelemetryWriter, blocks: int, readings: int = 4) -> None:
    for block in range(blocks):
        for number in range(readings):
            into.now_ns = 1000 + block * 100 + number
            into.reading(COUNTER, block * 100 + number)
        into.flush()


def read(folder: Path) -> Telemetry:
    found = read_telemetry(folder)
    assert found is not None
    return found


def test_what_is_written_is_read(tmp_path: Path) -> None:
    into = writer(tmp_path)
    for time_ns, value in ((10, -(2**62)), (20, 2**62), (15, 0)):
        into.now_ns = time_ns
        into.reading(GAUGE, value)
    into.missing("gpu GPU-1", "energy", "Not Supported")
    into.text("rank 0", "device", "GPU-1")
    into.close()
    found = read(tmp_path)
    series = found.find("gpu GPU-1", "power")
    assert series is not None
    assert series.times_ns.tolist() == [10, 15, 20]
    assert series.values.tolist() == [-(2**62), 0, 2**62]
    assert (series.sensor.unit, series.sensor.kind, series.sensor.provenance) == ("mW", Kind.GAUGE, Provenance.FAKE)
    assert found.missing == {("gpu GPU-1", "energy"): "Not Supported"}
    assert found.texts == {("rank 0", "device"): "GPU-1"}
    assert (found.period_ns, found.damage, found.dropped, found.is_fake) == (PERIOD_NS, "", False, True)


def test_a_value_that_no_column_holds_is_missing(tmp_path: Path) -> None:
    into = writer(tmp_path)
    into.reading(COUNTER, 2**64 - 1)
    into.close()
    assert read(tmp_path).why_missing("rank 0", "cpu_time") == f"{2**64 - 1} does not fit into 64 bits with a sign"


def test_a_missing_sensor_has_no_readings(tmp_path: Path) -> None:
    into = writer(tmp_path)
    into.missing("rank 0", "cpu_time", "no such file")
    into.close()
    assert read(tmp_path).find("rank 0", "cpu_time") is None
    assert read(tmp_path).why_missing("rank 0", "cpu_time") == "no such file"


def test_a_file_that_ends_anywhere_is_read_up_to_there(tmp_path: Path) -> None:
    """As after `kill -9`, or while the sampler writes."""
    into = writer(tmp_path)
    fill(into, blocks=3)
    into.close()
    (path,) = tmp_path.iterdir()
    whole, counts = path.read_bytes(), set()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        found = read_telemetry(tmp_path)
        series = found and found.find("rank 0", "cpu_time")
        assert found is None or found.damage == ""
        counts.add(len(series.values) if series else 0)
    assert counts == {0, 4, 8}


def test_a_damaged_byte_ends_the_reading_and_is_said(tmp_path: Path) -> None:
    into = writer(tmp_path)
    fill(into, blocks=3)
    into.close()
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = read(tmp_path)
    series = found.find("rank 0", "cpu_time")
    assert series is not None
    assert len(series.values) == 8
    assert "is damaged at byte" in found.damage


def test_the_oldest_segments_are_dropped_and_each_can_be_read_alone(tmp_path: Path) -> None:
    into = writer(tmp_path, segment_bytes=300)
    into.missing("host", "energy", "no RAPL zone")
    fill(into, blocks=200)
    into.close()
    kept = sorted(tmp_path.iterdir())
    assert len(kept) == fmt.SEGMENTS_KEPT
    assert sum(path.stat().st_size for path in kept) < fmt.SEGMENTS_KEPT * 1000
    found = read(tmp_path)
    series = found.find("rank 0", "cpu_time")
    assert found.dropped
    assert series is not None
    assert series.values[-1] == 199 * 100 + 3
    assert found.missing == {("host", "energy"): "no RAPL zone"}
    for path in kept[:-1]:
        path.unlink()
    assert read(tmp_path).missing == {("host", "energy"): "no RAPL zone"}


def test_sensors_without_further_readings_make_room_in_the_next_segment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of processes that have ended, for example: a long job sees many."""
    monkeypatch.setattr(fmt, "MOST_SENSORS", 3)
    into = writer(tmp_path, segment_bytes=1)
    for number in range(8):
        process = Sensor(f"process {number}", "cpu_time", "ns", Kind.COUNTER)
        into.reading(COUNTER, number)
        into.reading(process, 7)
        into.flush()
    into.close()
    found = read(tmp_path)
    assert [series.values.tolist() for key, series in found.series.items() if key[0] != "rank 0"] == [[7]] * 8
    assert found.find("rank 0", "cpu_time") is not None and not found.missing


def record(kind: int, payload: bytes) -> bytes:
    return fmt.RECORD.pack(kind, len(payload), zlib.crc32(payload)) + payload


ABOUT = record(Record.ABOUT, b'{"format": 1, "period_ns": 1, "wall_offset_ns": 0, "pid": 1}')
SENSOR = record(
    Record.SENSOR,
    b'{"number": 0, "subject": "s", "name": "n", "unit": "u", "kind": "gauge", "provenance": "measured"}',
)
COLUMN = fmt.COLUMN.pack(0, 1) + struct.pack("<qq", 5, 7)
ONE_SENSOR_TWICE = struct.pack("<I", 2 * len(COLUMN)) + zlib.compress(2 * COLUMN)
NO_READINGS = struct.pack("<I", fmt.COLUMN.size) + zlib.compress(fmt.COLUMN.pack(0, 0))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"something else", "is not a file of telemetry"),
        (fmt.MAGIC + record(Record.ABOUT, b"{"), "is not JSON"),
        (fmt.MAGIC + record(Record.ABOUT, b'{"format": 2, "period_ns": 1, "wall_offset_ns": 0}'), "format"),
        (fmt.MAGIC + ABOUT + record(Record.SENSOR, SENSOR[9:].replace(b"gauge", b"gouge")), "not a kind of sensor"),
        (fmt.MAGIC + ABOUT + record(Record.SENSOR, SENSOR[9:].replace(b": 0", b": 9999")), "number"),
        (fmt.MAGIC + ABOUT + SENSOR + record(Record.VALUES, b"ab"), "truncated"),
        (fmt.MAGIC + ABOUT + SENSOR + record(Record.VALUES, struct.pack("<I", 1 << 31) + b"x"), "larger than"),
        (fmt.MAGIC + ABOUT + SENSOR + record(Record.VALUES, struct.pack("<I", 9) + b"\xff" * 9), "cannot be unpacked"),
        (
            fmt.MAGIC + ABOUT + SENSOR + record(Record.VALUES, struct.pack("<I", 8) + zlib.compress(b"0" * 100_000)),
            "not 8",
        ),
        (
            fmt.MAGIC
            + ABOUT
            + SENSOR
            + record(Record.VALUES, struct.pack("<I", 8) + zlib.compress(fmt.COLUMN.pack(0, 1 << 30))),
            "not what it says",
        ),
        (
            fmt.MAGIC
            + ABOUT
            + record(Record.VALUES, struct.pack("<I", 24) + zlib.compress(fmt.COLUMN.pack(7, 1) + bytes(16))),
            "not what it says",
        ),
        (fmt.MAGIC + ABOUT + SENSOR + record(Record.VALUES, NO_READINGS), "not what it says"),
        (fmt.MAGIC + ABOUT + SENSOR + record(Record.VALUES, ONE_SENSOR_TWICE), "not what it says"),
    ],
)
def test_hostile_files_cost_nothing_and_are_said(data: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / fmt.segment_name(1)).write_bytes(data)
    assert problem in read(tmp_path).damage


def test_a_column_of_few_readings_costs_more_of_the_bound_than_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MOST_UNPACKED_BYTES", 10 * (len(COLUMN) + reader._COLUMN_COST_BYTES))
    block = record(Record.VALUES, struct.pack("<I", len(COLUMN)) + zlib.compress(COLUMN))
    (tmp_path / fmt.segment_name(1)).write_bytes(fmt.MAGIC + ABOUT + SENSOR + 100 * block)
    found = reader.read_telemetry(tmp_path, 10 * (len(COLUMN) + reader._COLUMN_COST_BYTES))
    assert found is not None
    assert found.series["s", "n"].values.tolist() == [7] * 10


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / fmt.segment_name(1)).symlink_to("/dev/zero")
    assert "is not a regular file" in read(tmp_path).damage


def test_no_folder_is_no_telemetry(tmp_path: Path) -> None:
    assert read_telemetry(tmp_path / "telemetry") is None
    assert read_telemetry(tmp_path) is None


def test_of_more_than_may_be_read_the_newest_segments_are(tmp_path: Path) -> None:
    into = writer(tmp_path, segment_bytes=1)
    fill(into, blocks=4)
    into.close()
    whole, newest = read(tmp_path), read_telemetry(tmp_path, most_bytes=1)
    assert newest is not None
    assert len(list(tmp_path.iterdir())) > 2
    assert (whole.dropped, newest.dropped) == (False, True)
    of_all, of_last = (found.series["rank 0", "cpu_time"].values.tolist() for found in (whole, newest))
    assert 0 < len(of_last) < len(of_all) and of_all[-len(of_last) :] == of_last


def test_nodes_as_one_have_the_clock_of_the_first(tmp_path: Path) -> None:
    """The second one's clock shows less at the same time: it was booted later."""
    nodes = {}
    for name, wall_offset_ns, at_ns in (("n1", 1000, 50), ("n2", 1030, 20)):
        into = TelemetryWriter(tmp_path / name, {**about(PERIOD_NS), "wall_offset_ns": wall_offset_ns})
        into.now_ns = at_ns
        for subject in ("host", "rank 0" if name == "n1" else "rank 1"):
            into.reading(Sensor(subject, "x", "ns", Kind.COUNTER), 1)
        into.missing("cpu 0", "y", f"not on {name}")
        into.close()
        nodes[name] = read(tmp_path / name)
    one = merged(nodes)
    assert {key: series.times_ns.tolist() for key, series in one.series.items()} == {
        ("host on n1", "x"): [50], ("rank 0", "x"): [50], ("host on n2", "x"): [50], ("rank 1", "x"): [50],
    }  # fmt: skip
    assert one.missing == {("cpu 0 on n1", "y"): "not on n1", ("cpu 0 on n2", "y"): "not on n2"}
    assert one.wall_offset_ns == 1000
