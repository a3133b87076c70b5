"""Readings of a job's nodes: each is read when it is asked for, and not all of them are held at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.jobs.storage import job_telemetry
from prismdbg.jobs.storage.job_nodes import NodeState
from prismdbg.jobs.storage.job_telemetry import JobTelemetry
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.telemetry.sensor import Kind, Sensor
from prismdbg.telemetry.writer import TelemetryWriter, about

NAMES = ("n1", "n2", "n3")


def read_by(folder: Path, subject: str) -> None:
    into = TelemetryWriter(folder, about(1000))
    into.reading(Sensor(subject, "cpu_time", "ns", Kind.COUNTER), 1)
    into.close()


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    for name in NAMES:
        read_by(run.telemetry / name, name)
    return run


def state(name: str, *, local: str = "") -> NodeState:
    return NodeState(name=name, ranks=(), exit_code=0, silent_s=None, local=local, visible=bool(local))


def test_each_node_has_its_own(run: RunFolder) -> None:
    found = JobTelemetry(run, [state(name) for name in (*NAMES, "n4")])
    assert list(found) == list(NAMES) and len(found) == 3
    assert [found[name].subjects() for name in NAMES] == [[name] for name in NAMES]
    assert "n4" not in found


def test_what_a_node_keeps_is_read_there_where_it_is_this_one(run: RunFolder, tmp_path: Path) -> None:
    local = RunFolder(run.path, tmp_path / "prismdbg-x")
    read_by(local.telemetry / "n1", "newer")
    assert JobTelemetry(run, [state("n1", local=str(tmp_path / "prismdbg-x"))])["n1"].subjects() == ["newer"]


def test_a_job_of_one_node_has_an_empty_name(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    assert not JobTelemetry(run, [])
    read_by(run.telemetry, "alone")
    assert JobTelemetry(run, [])[""].subjects() == ["alone"]


def test_few_are_held_at_once_and_share_the_memory(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, int]] = []
    reads = job_telemetry.read_telemetry

    def counted(folder: Path, most_bytes: int) -> object:
        read.append((folder.name, most_bytes))
        return reads(folder, most_bytes)

    monkeypatch.setattr(job_telemetry, "read_telemetry", counted)
    found = JobTelemetry(run, [state(name) for name in NAMES], at_once=2)
    for name in ("n1", "n1", "n2", "n3", "n1"):
        _ = found[name]
    assert [name for name, _ in read] == ["n1", "n2", "n3", "n1"]
    assert {most for _, most in read} == {job_telemetry.MOST_UNPACKED_BYTES // 2}


def test_a_folder_that_has_gone_is_damage(run: RunFolder) -> None:
    found = JobTelemetry(run, [state("n1")])
    for path in (run.telemetry / "n1").iterdir():
        path.unlink()
    assert found["n1"].damage.endswith("has been removed")
