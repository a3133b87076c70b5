"""A shared folder that stands still, is gone and comes back, or is full: the job and its logs on the node go on."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from chain import prismdbg
from file_server import missing, served
from jobs import JOB_BOUND_S, Job, forked, record_command, started
from waiting import wait_for

from prismdbg.capsule.log.reader import read_log
from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.run_folder import RunFolder

pytestmark = [pytest.mark.job, pytest.mark.skipif(bool(missing()), reason=missing() or "a file server can be made")]
PROGRAM = Path(__file__).parents[1] / "chain_jobs" / "until_told.py"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """`node`: below which the ranks write. `told`: the job's own folder."""

    job: Job
    run: RunFolder
    node: Path
    told: Path

    def local(self) -> Path:
        (folder,) = self.node.iterdir()
        return folder

    def steps(self) -> int:
        return max(mark.step for mark in read_log(self.local() / "ranks" / "0").steps)

    def goes_on(self) -> None:
        reached = self.steps()
        wait_for(lambda: self.steps() > reached + 3, JOB_BOUND_S, "three steps")

    def end(self) -> str:
        (self.told / "last").write_text(str(self.steps() + 10))
        ended = self.job.wait()
        assert ended.code == 0, ended.output
        assert len(re.findall("rank [01] parameters", ended.output)) == 2, ended.output
        return ended.output

    def is_whole(self) -> None:
        assert {folder.name: read_log(folder).notes[-1].kind for folder in self.run.rank_folders()} == {
            "0": "exit",
            "1": "exit",
        }
        assert list(self.node.iterdir()) == []


@contextmanager
def recorded(shared: Path, base: Path) -> Iterator[Recorded]:
    node, told = base / "node", base / "told"
    node.mkdir()
    told.mkdir()
    job = forked(PROGRAM, told, 0.05, ranks=2)
    with started(record_command(job, shared / "run", "--local", str(node)), base / "output.txt") as running:
        found = Recorded(job=running, run=RunFolder(shared / "run"), node=node, told=told)
        wait_for(
            lambda: not running.alive or any(node.glob("*/ranks/0/events.*.seg")), JOB_BOUND_S, "the log of rank 0"
        )
        assert running.alive, running.output
        wait_for(lambda: _has_begun(found.local() / "ranks" / "0"), JOB_BOUND_S, "the first step")
        yield found


def _has_begun(folder: Path) -> bool:
    """A segment is there before its first record is."""
    with suppress(CapsuleError):
        return bool(read_log(folder).steps)
    return False


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def test_a_job_goes_on_while_the_shared_folder_stands_still(shared: Path, tmp_path: Path) -> None:
    with served(shared, tmp_path) as server, recorded(shared, tmp_path) as job:
        server.stop()
        job.goes_on()
        server.process.resume()
        job.end()
        job.is_whole()


def test_what_a_lost_shared_folder_lacks_is_copied_when_it_is_back(shared: Path, tmp_path: Path) -> None:
    with served(shared, tmp_path) as server, recorded(shared, tmp_path) as job:
        server.process.kill()
        server.process.wait(20)
        job.goes_on()
        output = job.end()
        assert "lacks the logs of this node" in output and f"they are in {job.local()}" in output, output
        subprocess.run(["umount", "--lazy", str(shared)], check=True)
        subprocess.run(["mount", "--bind", str(tmp_path / "behind"), str(shared)], check=True)
        try:
            assert f"in {job.local()}: run `prismdbg publish" in wait_until_lost(job)
            assert prismdbg("publish", job.run.path).code == 0
            job.is_whole()
            assert prismdbg("why", job.run.path).code == 0
        finally:
            subprocess.run(["umount", "--lazy", str(shared)], check=True)


def wait_until_lost(job: Recorded) -> str:
    """What `status` says once the last heartbeat is old enough."""
    found = [""]

    def is_named() -> bool:
        found.append(prismdbg("status", job.run.path).err)
        return "prismdbg publish" in found[-1]

    wait_for(is_named, 60, "the logs to be named")
    return found[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_what_a_full_shared_folder_lacks_is_copied_when_it_has_room(shared: Path, tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(shared)], check=True)
    try:
        with recorded(shared, tmp_path) as job:
            filled = fill(shared / "of others")
            output = job.end()
            assert "No space left on device" in output and f"they are in {job.local()}" in output, output
            refused = prismdbg("publish", job.run.path)
            assert refused.code == 4 and "No space left on device" in refused.err, refused.err
            filled.unlink()
            assert prismdbg("publish", job.run.path).code == 0
            job.is_whole()
    finally:
        subprocess.run(["umount", "--lazy", str(shared)], check=True)


def fill(path: Path) -> Path:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return path
