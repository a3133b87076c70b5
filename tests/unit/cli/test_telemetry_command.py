"""`prismdbg telemetry`, and the option of `record`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from prismdbg.capsule import layout
from prismdbg.capsule.manifest import Incident, IncidentKind, Origin
from prismdbg.cli import main
from prismdbg.cli.click_errors import WrongValue
from prismdbg.cli.options.param_types import period
from prismdbg.jobs.capture.assemble import Ingredients, assemble
from prismdbg.jobs.storage.verify import Severity, verify
from prismdbg.model.sizes import size
from prismdbg.telemetry.file_format import segment_name
from prismdbg.telemetry.sensor import Kind, Provenance, Sensor
from prismdbg.telemetry.writer import TelemetryWriter, about
from tests.unit.jobs.capture.test_assemble import made, run_folder

OF_RANKS = [Sensor(f"rank {rank}", "cpu_time", "ns", Kind.COUNTER) for rank in range(2)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    into = TelemetryWriter(folder / "telemetry", about(50_000_000))
    ran = Sensor("rank 1", "cpu_time", "ns", Kind.COUNTER)
    power = Sensor("gpu GPU-FAKE-1", "power", "mW", Kind.GAUGE, Provenance.FAKE)
    other = Sensor("gpu GPU-FAKE-2", "power", "mW", Kind.GAUGE, Provenance.FAKE)
    for second in range(3):
        into.now_ns = second * 1_000_000_000
        into.reading(ran, second * 500_000_000)
        into.reading(power, 250_000)
        into.reading(other, 1)
    into.missing("host", "energy", "no RAPL zone")
    into.text("rank 1", "device", "GPU-FAKE-1")
    into.close()
    return folder


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_table_has_rates_levels_what_is_missing_and_what_is_fake(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = said(capsys, "telemetry", run)
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert ["rank", "1", "cpu_time", "500", "500", "500", "ms/s", "3"] in rows
    assert ["gpu", "GPU-FAKE-1", "power", "2.5e+05", "2.5e+05", "2.5e+05", "mW", "3", "fake"] in rows
    assert "not available: energy of host: no RAPL zone" in out
    assert "fake: read from a mock NVML library" in out


def test_one_rank_is_shown_with_its_devices_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "telemetry", run, "--rank", 1, "--json")
    shown = {sensor["subject"]: sensor for sensor in json.loads(out)["sensors"]}
    assert set(shown) == {"rank 1", "gpu GPU-FAKE-1"}
    assert shown["rank 1"]["median"] == 5e8


def test_csv_has_a_line_for_each_reading(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "telemetry", run, "--rank", 1, "--export", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["value"] for row in rows if row["sensor"] == "cpu_time"] == ["0", "500000000", "1000000000"]
    assert {row["provenance"] for row in rows if row["sensor"] == "power"} == {"fake"}


@pytest.mark.parametrize(("form", "more"), [("csv", ""), ("perfetto", ": open it at https://ui.perfetto.dev")])
def test_an_export_names_its_file(
    form: str, more: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "readings"
    code, out, err = said(capsys, "telemetry", run, "--export", form, "-o", path)
    assert (code, out) == (0, "")
    assert err.splitlines() == [f"{path}: 3 sensors, {size(path.stat().st_size)}{more}"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--rank", 9), "no telemetry of rank 9"),
        (("-o", "x"), "-o needs --export"),
        (("--export", "csv", "--json"), "exclude each other"),
        (("--export", "perfetto"), "--export perfetto writes a binary file"),
    ],
)
def test_what_makes_no_sense_is_one_error(
    arguments: tuple[object, ...], problem: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = said(capsys, "telemetry", run, *arguments)
    assert code == 2
    assert problem in err
    assert "try:" in err


def test_a_run_without_telemetry_says_how_to_get_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text("{}")
    code, _, err = said(capsys, "telemetry", tmp_path)
    assert code == 2
    assert "record the job with --telemetry" in err


def test_a_damaged_file_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "telemetry" / segment_name(1)
    path.write_bytes(b"x" * 100)
    code, _, err = said(capsys, "telemetry", run)
    assert code == 3
    assert "is not a file of telemetry" in err


def test_a_capsule_has_the_readings_of_its_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path / "run")
    into = TelemetryWriter(run.telemetry, about(1000))
    for time_ns in range(0, 10_000, 1000):
        into.now_ns = time_ns
        into.reading(OF_RANKS[0], time_ns)
        into.reading(OF_RANKS[1], time_ns)
    into.close()
    request = Incident(kind=IncidentKind.REQUEST, text="by hand")
    parts = Ingredients(
        run=run, folder=run.ranks / "0", output=tmp_path / "capsule", origin=Origin.START, incident=request
    )
    capsule = assemble(parts)
    assert all(finding.severity is Severity.NOTE for finding in verify(capsule.path))
    _, out, _ = said(capsys, "telemetry", capsule.path, "--json")
    assert {sensor["subject"] for sensor in json.loads(out)["sensors"]} == {"rank 0"}
    packed = tmp_path / "one.tar.zst"
    assert main.run(["pack", str(capsule.path), "-o", str(packed)]) == 0
    capsys.readouterr()
    _, from_archive, _ = said(capsys, "telemetry", packed, "--json")
    assert json.loads(from_archive)["sensors"] == json.loads(out)["sensors"]


def test_readings_that_cannot_be_read_do_not_hinder_a_capture(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    run.telemetry.mkdir()
    (run.telemetry / segment_name(1)).write_bytes(b"damaged by a disk")
    request = Incident(kind=IncidentKind.REQUEST, text="by hand")
    parts = Ingredients(
        run=run, folder=run.ranks / "0", output=tmp_path / "capsule", origin=Origin.START, incident=request
    )
    assert not (assemble(parts).path / layout.TELEMETRY).exists()


def test_a_capsule_without_readings_says_how_to_get_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "telemetry", made(tmp_path, range(0)).path)
    assert code == 2
    assert "record the job with --telemetry" in err


@pytest.mark.parametrize(("text", "ns"), [("50ms", 50_000_000), ("1s", 10**9), ("0.5s", 5 * 10**8), ("10ms", 10**7)])
def test_periods(text: str, ns: int) -> None:
    assert period(text) == ns


@pytest.mark.parametrize("text", ["", "50", "5ms", "torchrun", "61s", "nanms", "-1s", "1m"])
def test_what_is_no_period_is_refused(text: str) -> None:
    with pytest.raises(WrongValue):
        period(text)
