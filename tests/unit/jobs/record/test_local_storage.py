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


def test_state_snapshots_go_into_memory_only_where_the_user_wants_it(
    on_a_server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are as large as what the job trains, several of each rank: the node has no room for them."""
    monkeypatch.setattr(local_storage, "is_memory", lambda folder: True)
    assert chosen("", on_a_server, {}, has_states=True) is None
    assert chosen(str(tmp_path), on_a_server, {}, has_states=True) == tmp_path
    monkeypatch.setattr(local_storage, "is_memory", lambda folder: folder != tmp_path)
    assert chosen("", on_a_server, {"TMPDIR": str(tmp_path)}, has_states=True) == tmp_path


@pytest.mark.parametrize(
    ("state_every", "bound"),
    [
        (0, "; this is memory, up to 64.0 MiB per rank;"),
        (5, "; this is memory, up to 4.1 GiB per rank besides state snapshots, up to 3 per rank, and up to "
            "4.2 GiB per rank from before its restore point;"),
    ],
)  # fmt: skip
def test_of_memory_all_that_goes_there_is_said(state_every: int, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_storage, "is_memory", lambda folder: True)
    policy = Policy(log_bytes=64 << 20)
    request = RecordRequest(output=Path("run"), command=("true",), state_every=state_every, policy=policy)
    assert bound in record.where_ranks_write(request, Path("/memory/prismdbg-x"))


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        chosen(str(tmp_path / "none"), tmp_path, {})


LOCKS = (
    "import fcntl, glob, os, sys\n"
    "(folder,) = glob.glob(sys.argv[1])\n"
    "try: fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    "except BlockingIOError: sys.exit(7)\n"
)


@pytest.mark.parametrize(("is_local", "locked"), [(True, "local/prismdbg-*"), (True, "run"), (False, "run")])
def test_the_folders_of_a_job_that_runs_are_locked(is_local: bool, locked: str, tmp_path: Path) -> None:
    """systemd-tmpfiles leaves out what it cannot lock, and removes what nobody has touched for days."""
    below = tmp_path / "local"
    below.mkdir()
    command = (sys.executable, "-c", LOCKS, str(tmp_path / locked))
    local = str(below) if is_local else ""
    request = RecordRequest(output=tmp_path / "run", command=command, local=local, policy=Policy())
    assert record.record(request, print) == 7
    assert list(below.iterdir()) == []


def test_a_run_on_a_file_server_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clients would have to ask the server for that."""
    monkeypatch.setattr(local_storage, "is_local", lambda folder: False)
    command = (sys.executable, "-c", LOCKS, str(tmp_path / "run"))
    request = RecordRequest(output=tmp_path / "run", command=command, policy=Policy())
    assert record.record(request, print) == 0
