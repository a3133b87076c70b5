"""`sbatch examples/slurm/job.sbatch` on two nodes of a real Slurm: a NaN, `requeue`, `scancel`, and what is killed."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from chain import CLI, assert_identical
from cluster import Cluster, slurm_cluster, why_no_slurm
from jobs import ROOT
from other_user import NOBODY, as_nobody, home_of_nobody, readable
from two_nodes import Node
from waiting import wait_for

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.reader import read_log
from prismdbg.capsule.manifest import Origin
from prismdbg.jobs.storage.job_nodes import node_of, supervisor_report
from prismdbg.jobs.storage.run_folder import RunFolder

pytestmark = [
    pytest.mark.job,
    pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm() or "Slurm can run"),
]
SBATCH = ROOT / "examples" / "slurm" / "job.sbatch"
INTEGRATION = ROOT / "tests" / "integration"
STATEFUL, NAN_AT = INTEGRATION / "programs" / "stateful_mlp.py", 20
WRONG = ("--steps", 26, "--nan-data-at", NAN_AT)
UNTIL_TOLD = INTEGRATION / "chain_jobs" / "until_told.py"
BOUND_S = 180.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with slurm_cluster(tmp_path) as two:
        yield two


class Submitted:
    """A job of the example's script, of four ranks, and its RUN."""

    def __init__(self, cluster: Cluster, script: Path, *arguments: object) -> None:
        self.cluster = cluster
        self.run = RunFolder(cluster.shared / "run")
        self.output = cluster.shared / "output.txt"
        options = (f"--export=ALL,RUN={self.run.path}", "--output", self.output)
        self.number = cluster.sbatch(*options, SBATCH, script, *arguments)

    def wait_for(self, condition: Any, what: str) -> None:
        try:
            wait_for(condition, BOUND_S, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the job's output ends:\n{self.text[-4000:]}") from None

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    @property
    def problems(self) -> list[str]:
        return list(supervisor_report(self.run)["problems"])

    def step(self, name: str) -> int:
        """The last one in a log; 0 while there is none."""
        folder = self.run.ranks / name
        if not (folder / "rank.json").exists():
            return 0
        return max((mark.step for mark in read_log(folder).steps), default=0)

    def trains(self, attempt: str = "") -> None:
        """Waits until it does."""
        first = [f"{rank}{attempt}" for rank in range(4)]
        self.wait_for(lambda: all(self.step(name) > 3 for name in first), f"four steps of {', '.join(first)}")

    def goes_on(self, name: str) -> None:
        reached = self.step(name)
        self.wait_for(lambda: self.step(name) > reached, f"rank {name} to go on")

    def says(self, command: str, node: Node | None = None) -> str:
        said = (node or self.cluster.one).prismdbg(command, self.run.path)
        assert said.code == 0, said.err
        return said.out + said.err

    def nodes(self) -> dict[str, str]:
        told = self.cluster.one.prismdbg("status", self.run.path, "--json").json
        return {node["node"]: node["state"] for node in told["nodes"]}


@pytest.fixture
def training(cluster: Cluster) -> Submitted:
    """That goes on until `told/last` names its last step."""
    told = cluster.shared / "told"
    told.mkdir()
    job = Submitted(cluster, UNTIL_TOLD, told, 0.05)
    job.trains()
    return job


def the_process(node: Node, *words: str) -> psutil.Process:
    (found,) = [process for process in node.processes(*words) if process.ppid() != 0]
    return found


def test_a_nan_of_the_second_node_is_captured_and_replayed_on_the_first(cluster: Cluster) -> None:
    job = Submitted(cluster, INTEGRATION / "node_jobs" / "goes_wrong_on_a_rank.py", "nan", 3)
    assert cluster.wait_for_state(job.number, "COMPLETED", "FAILED") == "COMPLETED", job.text
    (capsule,) = job.run.capsules.iterdir()
    assert Capsule.open(capsule).manifest.rank == 3 and node_of(job.run.ranks / "3") == "n2"

    why = job.says("why")
    program = INTEGRATION / "node_jobs" / "goes_wrong_on_a_rank.py"
    line = 1 + next(at for at, text in enumerate(program.read_text().splitlines()) if "all_reduce(" in text)
    assert why.startswith("certain: rank 3 sent the first NaN or Inf") and f"{program.name}:{line}" in why, why
    assert "node n2: rank 3" in why, why
    assert "node n1 (rank 0, rank 1): ended" in job.says("status", cluster.two)
    verdict = cluster.one.prismdbg("replay", capsule, "--runtime", "local", "--json")
    assert verdict.code == 0, verdict.err
    assert_identical(verdict.json, capsule)


def test_of_a_user_without_rights_the_capsule_starts_at_a_state_snapshot(cluster: Cluster) -> None:
    home, run = cluster.shared / "home", RunFolder(cluster.shared / "home" / "run")
    home.mkdir()
    home_of_nobody(home)
    for node in (cluster.one, cluster.two):
        subprocess.run(node.line(["sh", "-c", readable(Path("/tmp/of-root"))]), check=True, timeout=30)
    own = as_nobody(home, ["env", f"RUN={run.path}", "RECORD=--state-every 8"])
    number = cluster.sbatch(f"--output={home / 'out'}", f"--chdir={home}", SBATCH, STATEFUL, *WRONG, become=own)
    ended = cluster.wait_for_state(number, "COMPLETED", "FAILED")
    assert ended == "COMPLETED", (home / "out").read_text()[-4000:]

    assert run.path.stat().st_uid == NOBODY and node_of(run.ranks / "3") == "n2"
    (capsule,) = run.capsules.iterdir()
    manifest = Capsule.open(capsule).manifest
    assert (manifest.rank, manifest.origin, manifest.moment_b.step) == (3, Origin.STATE, NAN_AT)
    asked = [*CLI, "why", str(run.path)], [*CLI, "replay", str(capsule), "--runtime", "plain", "--allow-writes"]
    why, replayed = (cluster.run(*as_nobody(home, line), bound_s=BOUND_S) for line in asked)
    assert why.startswith("certain: rank 3 sent the first NaN") and "node n2: rank 3" in why, why
    assert replayed.startswith("identical"), replayed


def test_a_requeued_job_goes_on_in_the_same_run_as_another_attempt(training: Submitted) -> None:
    cluster, job = training.cluster, training
    cluster.run("scontrol", "requeue", job.number)
    job.trains(".1")
    assert job.nodes() == {
        "n1": "ended with 1",
        "n2": "ended with 1",
        "n1.restart1": "running",
        "n2.restart1": "running",
    }
    report = supervisor_report(job.run)
    assert report["incidents"] == [], "what a scheduler ends is no incident"
    why = job.says("why")
    assert why.startswith("no problem found") and "this is attempt 2: earlier" in why, why
    assert "told to end" not in why and "job was terminated" not in why, "that was the first attempt"

    (cluster.shared / "told" / "last").write_text(str(job.step("0.1") + 20))
    assert cluster.wait_for_state(job.number, "COMPLETED", "FAILED") == "COMPLETED", job.text
    states = {name: state for name, state in job.nodes().items() if "restart" in name}
    assert set(states.values()) == {"ended"} and supervisor_report(job.run)["exit_code"] == 0


def test_a_cancelled_job_was_told_to_end(training: Submitted) -> None:
    cluster, job = training.cluster, training
    cluster.run("scancel", job.number)
    cluster.wait_for_state(job.number, "CANCELLED")
    job.wait_for(lambda: "exit_code" in supervisor_report(job.run), "both supervisors to end")
    assert job.nodes() == {"n1": "ended with 1", "n2": "ended with 1"}
    report = supervisor_report(job.run)
    assert (report["incidents"], report["capsules"]) == ([], [])
    assert report["interrupted"]["signal"] == signal.SIGTERM
    why = job.says("why")
    assert why.startswith("no problem found") and "the job was told to end" in why, why


def test_a_supervisor_that_is_killed_is_named_and_the_job_goes_on(training: Submitted) -> None:
    cluster, job = training.cluster, training
    the_process(cluster.two, "record", str(job.run.path)).kill()
    named = "node n1: node n2 with ranks 2, 3 has been silent"
    job.wait_for(lambda: any(text.startswith(named) for text in job.problems), "node n2 to be named")
    assert job.nodes() == {"n1": "running", "n2": "supervisor lost"}
    job.goes_on("3")
    assert cluster.state(job.number) == "RUNNING"
    cluster.run("scancel", job.number)
    cluster.wait_for_state(job.number, "CANCELLED")
    job.wait_for(lambda: job.nodes()["n1"] != "running", "the other supervisor to end")
    assert supervisor_report(job.run)["incidents"] == []


def test_a_slurmd_that_is_killed_requeues_the_job_and_it_goes_on_in_the_run(training: Submitted) -> None:
    """Slurm takes the node for lost, ends the job on the other one, and starts it again when the node is back."""
    cluster, job = training.cluster, training
    (slurmd,) = cluster.two.processes("slurmd", "-D")
    slurmd.kill()
    job.wait_for(lambda: "down" in cluster.run("sinfo", "-h", "-n", "n2", "-o", "%T"), "node n2 to be down")
    for left in cluster.two.processes("until_told.py"):  # as where the machine was started again
        with suppress(psutil.NoSuchProcess):
            left.kill()
    cluster.start("slurmd", "-D", "-N", "n2", node=cluster.two)
    job.trains(".1")
    states = job.nodes()
    assert states["n1.restart1"] == states["n2.restart1"] == "running", states
    assert "attempt 2" in job.says("why")


def test_a_node_that_is_lost_whole_is_named(training: Submitted) -> None:
    cluster, job = training.cluster, training
    cluster.two.kill()
    job.wait_for(lambda: job.nodes()["n2"] == "lost", "node n2 to count as lost")
    why = job.says("why")
    assert why.startswith("certain: node n2 with ranks 2 and 3 is lost"), why
