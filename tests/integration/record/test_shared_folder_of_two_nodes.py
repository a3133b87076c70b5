"""A folder that two nodes share and record into is slow, full, or gone and back: the job goes on, what happens is told
and captured, and nothing of what lies on the nodes is lost."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from file_server import missing, no_slow_one, served
from test_shared_folder_faults import fill
from test_two_nodes import BOUND_S, JOBS, OnTwo, on_two_nodes
from two_nodes import Node, job_line, why_impossible
from waiting import wait_for

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.reader import read_log
from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.job_nodes import supervisor_report

pytestmark = [
    pytest.mark.job,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible() or "nodes can be made"),
]
LOCAL = Path("/dev/shm")  # each node has its own
PAUSE_S = 0.05
SERVED = "served"


class Recorded:
    """`two`, whose RUN is in the folder `served` of what both nodes see, and whose ranks write on their nodes."""

    def __init__(self, two: OnTwo) -> None:
        self.two = two

    def kept(self, node: Node) -> list[Path]:
        """What lies on the node, as it is seen from here."""
        return sorted(Path(f"/proc/{node.first.pid}/root{LOCAL}").glob("prismdbg-*"))

    def times(self) -> dict[int, int]:
        """Of each step of rank 0 when it began, by its log on its node."""
        for node in self.two.nodes:
            for folder in self.kept(node):
                try:
                    return {mark.step: mark.time_ns for mark in read_log(folder / "ranks" / "0").steps}
                except (CapsuleError, OSError):  # not there, or of the other node
                    continue
        return {}

    def step(self) -> int:
        return max(self.times(), default=0)

    def goes_on(self, steps: int = 10) -> None:
        last = self.step() + steps
        wait_for(lambda: self.step() >= last, BOUND_S, f"step {last}")

    def job(self) -> list[psutil.Process]:
        """Its processes on both nodes."""
        found = [process for node in self.two.nodes for process in node.processes("torch.distributed.run")]
        records = [process for node in self.two.nodes for process in node.processes("prismdbg.cli.main", "record")]
        return [process for process in found if process not in records]

    def has_captured_the_nan(self) -> None:
        self.two.wait_for(lambda: supervisor_report(self.two.run)["capsules"], "a capsule of the NaN")
        (incident,) = supervisor_report(self.two.run)["incidents"]
        assert (incident["kind"], incident["ranks"]) == ("nan", [3]), incident
        (capsule,) = self.two.run.capsules.iterdir()
        assert Capsule.open(capsule).manifest.rank == 3

    def is_whole(self) -> None:
        logs = {folder.name: read_log(folder) for folder in self.two.run.rank_folders()}
        assert {name: log.notes[-1].kind for name, log in logs.items()} == dict.fromkeys("0123", "exit")
        assert len({log.steps[-1].step for log in logs.values()}) == 1
        assert [self.kept(node) for node in self.two.nodes] == [[], []], "what was copied stays nowhere else"
        why = self.two.nodes[0].prismdbg("why", self.two.run.path)
        assert why.out.startswith("certain: rank 3 sent the first NaN"), why.out


@contextmanager
def recorded(home: Path) -> Iterator[Recorded]:
    (home / "shared" / "told").mkdir()
    line = job_line(JOBS.with_name("chain_jobs") / "until_told.py", home / "shared" / "told", PAUSE_S, 3)
    with on_two_nodes(home, line, "--window", "all", "--local", LOCAL, run=f"{SERVED}/run") as two:
        found = Recorded(two)
        two.wait_for(lambda: found.step() > 3, "four steps")
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "shared" / SERVED
    made.mkdir(parents=True)
    return made


@pytest.mark.skipif(bool(no_slow_one()), reason=no_slow_one() or "a file server can be slow")
def test_a_job_is_as_fast_as_before_while_the_folder_of_two_nodes_is_slow(folder: Path, tmp_path: Path) -> None:
    """Each reply takes 0.05 s, and an operation needs several. An incident is told meanwhile, and the job ends; the
    capsule and the logs come when the folder is as it was."""
    with served(folder, tmp_path, cached=True, reply_s=0.05) as server, recorded(tmp_path) as job:
        job.goes_on(15)
        usual = gaps(job.times())
        with server.slow():
            began = time.monotonic()
            list(folder.iterdir())
            assert time.monotonic() - began > 0.05, "it is slow"
            first = job.step()
            (job.two.told / "nan").touch()
            decided = tmp_path / "behind" / "run" / "incidents" / "0-nan" / "decided"
            job.two.wait_for(decided.is_dir, "the incident to be told")
            job.two.end_at(job.step() + 20)
            job.goes_on(15)
            slow = gaps({step: time_ns for step, time_ns in job.times().items() if step >= first})
            wait_for(lambda: not job.job(), 20, "the job to end")
            assert all(part.alive for part in job.two.parts), "there is more for the supervisors to do"
        assert job.two.end() == (0, 0), job.two.output
        assert slow[len(slow) // 2] < 3 * usual[len(usual) // 2], (usual, slow)
        job.has_captured_the_nan()
        job.is_whole()


def gaps(times: dict[int, int]) -> list[int]:
    """Between the steps, the shortest first."""
    return sorted(times[step + 1] - time_ns for step, time_ns in times.items() if step + 1 in times)


@pytest.mark.skipif(bool(missing()), reason=missing() or "a file server can be made")
def test_a_nan_while_the_folder_of_two_nodes_is_gone_is_captured_when_it_is_back(folder: Path, tmp_path: Path) -> None:
    """What lies behind it is where both nodes see it."""
    with served(folder, tmp_path / "shared", cached=True) as server, recorded(tmp_path) as job:
        server.process.kill()
        server.process.wait(20)
        job.goes_on()
        (job.two.told / "nan").touch()
        job.goes_on(40)
        with again(folder, tmp_path / "shared" / "behind", job.two.nodes):
            job.has_captured_the_nan()
            job.two.end_at(job.step() + 10)
            assert job.two.end() == (0, 0), job.two.output
            assert "has been silent" not in job.two.output, job.two.output
            job.is_whole()


@contextmanager
def again(folder: Path, behind: Path, nodes: Sequence[Node]) -> Iterator[None]:
    """Another server of what is in `behind`, here and on the nodes."""
    lines = [["umount", "--lazy", str(folder)], ["mount", "--bind", str(behind), str(folder)]]
    for line in [*lines, *(node.line(line) for node in nodes for line in lines)]:
        subprocess.run(line, check=True, timeout=30)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_folder_of_two_nodes_gets_what_it_lacks_when_it_has_room(folder: Path, tmp_path: Path) -> None:
    """Twice: a NaN while it is full is captured when it has room, and what is there at the end is copied by hand."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(folder)], check=True)
    try:
        with recorded(tmp_path) as job:
            filled = fill(folder / "of others")
            (job.two.told / "nan").touch()
            job.goes_on(40)
            filled.unlink()
            job.has_captured_the_nan()
            fill(folder / "of others")
            job.two.end_at(job.step() + 10)
            assert job.two.end() == (0, 0), job.two.output
            assert "the supervisor failed" not in job.two.output, job.two.output
            assert "has been silent" not in job.two.output, job.two.output
            for node in job.two.nodes:
                output = job.two.part(node).output
                assert "No space left on device; they are in /dev/shm/prismdbg-" in output, output
                refused = node.prismdbg("publish", job.two.run.path)
                assert refused.code == 4 and "No space left on device" in refused.err, refused.err
            filled.unlink()
            for node in job.two.nodes:
                done = node.prismdbg("publish", job.two.run.path)
                assert done.code == 0 and f"node {node.name}: copied the logs of rank" in done.err, done.err
            job.is_whole()
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
