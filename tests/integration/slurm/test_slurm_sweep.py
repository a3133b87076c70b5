"""`prismdbg sweep --on slurm` on a real Slurm: an array that is joined again, one that is cancelled,and results."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from chain import CLI, prismdbg
from cluster import Cluster, slurm_cluster, why_no_slurm
from jobs import ROOT, Job
from waiting import wait_for

pytestmark = [
    pytest.mark.job,
    pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm() or "Slurm can run"),
]
PROGRAM = ROOT / "tests" / "integration" / "programs" / "swept.py"
BOUND_S = 300.0


def line(output: Path, *options: object, tried: str) -> list[object]:
    sizes = ["--world", 4, "--mesh", "dp,tp", "--try", tried, "--try", "layers=2", "--steps", 4]
    return ["sweep", "-o", output, *sizes, *options, "--", sys.executable, PROGRAM, "{tp}", "{layers}"]


@contextmanager
def submitted(cluster: Cluster, output: Path, tried: str) -> Iterator[tuple[Job, psutil.Process]]:
    """The job of the command, and the sweep itself in its node, once Slurm has the array."""
    command = [*CLI, *line(output, "--on", "slurm:--time=20", tried=tried)]
    job = Job(cluster.one.line(command), cluster.shared / f"{output.name}.txt", env=cluster.environment())
    try:
        wait_for(lambda: has_array(output) or not job.alive, BOUND_S, "an array")
        assert job.alive, job.output
        (sweeping,) = job.process.children()
        yield job, sweeping
    finally:
        job.kill()


def has_array(output: Path) -> bool:
    """Whether sbatch has said its job: the record is older."""
    record = output / "slurm" / "array.json"
    return record.exists() and json.loads(record.read_text())["job"] > 0


def tasks(cluster: Cluster) -> list[str]:
    """Those that wait or run."""
    return cluster.run("squeue", "--noheader", "--array", "--format=%i").split()


def test_an_array_is_joined_again_cancelled_and_compared_as_a_sweep_of_this_machine(tmp_path: Path) -> None:
    with slurm_cluster(tmp_path) as cluster:
        output = cluster.shared / "s"
        with submitted(cluster, output, "tp=1,2,3,4") as (job, sweeping):
            sweeping.kill()
            job.wait(30)
        assert tasks(cluster), "the array goes on"
        refused = cluster.one.prismdbg(*line(output, tried="tp=1,2"))
        assert refused.code == 2 and "may still run configurations" in refused.err

        again = cluster.one.line([*CLI, *line(output, "--on", "slurm", "--json", tried="tp=1,2,4")])
        joining = Job(again, cluster.shared / "again.txt", env=cluster.environment())
        said = joining.wait(BOUND_S)
        assert said.code == 1, "one of them fails"
        assert "joining array" in said.output and "no layer can be shared by 4 ranks" in said.output
        assert not tasks(cluster) and not (output / "slurm" / "array.json").exists()
        ran = {path: path.stat().st_mtime_ns for path in output.glob("trials/*/ran.json")}
        assert len(ran) == 2

        other = cluster.shared / "other"
        with submitted(cluster, other, "tp=1,2") as (job, sweeping):
            wait_for(lambda: list(other.glob("trials/*/run/ranks/*/rank.json")), BOUND_S, "a rank to run")
            sweeping.send_signal(signal.SIGINT)
            assert job.wait(BOUND_S).code == 130
        assert not tasks(cluster) and not (other / "slurm" / "array.json").exists()
        assert not cluster.one.processes("swept.py") and not cluster.two.processes("swept.py")

    here = prismdbg(*line(output, "--json", tried="tp=1,2"))
    assert here.code == 0 and "2 configurations ran before; 0 to go" in here.err
    assert {path: path.stat().st_mtime_ns for path in ran} == ran
    assert [each["state"] for each in here.json["results"]] == ["done", "done"]
