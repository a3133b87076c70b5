"""Where a node keeps what its ranks write."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from prismdbg.errors import UsageError
from prismdbg.jobs.record import record
from prismdbg.jobs.record.nodes import local_storage
from prismdbg.jobs.record.nodes.local_storage import chosen
from prismdbg.jobs.record.record import RecordRequest
from prismdbg.jobs.record.supervisor import Policy


@pytest.fixture
def on_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    run = tmp_path / "served" / "run"
    monkeypatch.setattr(local_storage, "is_local", lambda folder: not folder.is_relative_to(tmp_path / "served"))
    return run


def test_ranks_write_into_a_run_on_a_disk_of_this_machine(tmp_path: Path) -> None:
    assert chosen("", tmp_path / "run", {}) is None
    assert chosen("none", Path("/net/run"), {}) is None


def test_of_a_run_on_a_server_a_disk_comes_before_memory(
    on_a_server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_storage, "is_memory", lambda folder: folder in (Path("/tmp"), Path("/dev/shm")))
    assert chosen("", on_a_server, {"TMPDIR": str(tmp_path)}) == tmp_path
    assert chosen("", on_a_server, {"TMPDIR": str(tmp_path / "none")}) == Path("/var/tmp")
    monkeypatch.setattr(local_storage, "is_memory", lambda folder: True)
    assert chosen("", on_a_server, {"SLURM_TMPDIR": str(tmp_path)}) == tmp_path
    monkeypatch.setattr(local_storage, "LEAST_FREE_BYTES", 1 << 60)
    assert chosen("", on_a_server, {}) is None


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        chosen(str(tmp_path / "none"), tmp_path, {})


def test_the_folder_of_a_job_that_runs_is_locked(tmp_path: Path) -> None:
    """systemd-tmpfiles leaves out what it cannot lock, and removes what nobody has touched for days."""
    below = tmp_path / "local"
    below.mkdir()
    program = (
        "import fcntl, glob, os, sys\n"
        f"(folder,) = glob.glob({str(below / 'prismdbg-*')!r})\n"
        "try: fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError: sys.exit(7)\n"
    )
    command = (sys.executable, "-c", program)
    request = RecordRequest(output=tmp_path / "run", command=command, local=str(below), policy=Policy())
    assert record.record(request, print) == 7
    assert list(below.iterdir()) == []
