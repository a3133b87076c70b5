"""A job that `mpirun` starts on two nodes, without torchrun and without --job-id: who belongs together."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from chain import CLI
from jobs import Job, plain_environment
from two_nodes import Node, record_line, two_nodes, why_impossible

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.jobs.storage.job_nodes import node_folders, node_of, supervisor_report
from prismdbg.jobs.storage.run_folder import RunFolder, read_json

pytestmark = pytest.mark.job
on_nodes = pytest.mark.skipif(bool(why_impossible()), reason=why_impossible() or "nodes can be made")
JOBS = Path(__file__).parents[1] / "node_jobs"
# What a script has that is started by mpirun: torch knows no variable of it.
_AS_TORCH_WANTS = """
export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE MASTER_ADDR=10.77.0.1 MASTER_PORT=29617
exec "$@"
"""
# In place of ssh: the other node carries out what is asked for, once.
_AGENT = """#!/bin/sh
shift
echo "$@" > {asked}.new
mv {asked}.new {asked}
"""
_OTHER_NODE = "until [ -e {asked} ]; do sleep 0.05; done; exec sh {asked}"


def recorded(run: Path) -> list[str]:
    program = [sys.executable, str(JOBS / "goes_wrong_on_a_rank.py"), "nan", "1"]
    return record_line(run, ["sh", "-c", _AS_TORCH_WANTS, "sh", *program], "--window", "all")


def is_one_job(run: RunFolder, nodes: Sequence[Node], output: str) -> None:
    assert {folder.name: node_of(folder) for folder in run.rank_folders()} == {"0": "n1", "1": "n2"}, output
    assert [node.name for node in node_folders(run)] == ["n1", "n2"]
    (incident,) = supervisor_report(run)["incidents"]
    assert (incident["kind"], incident["ranks"], incident["node"]) == ("nan", [1], "n2"), incident
    (capsule,) = run.capsules.iterdir()
    assert Capsule.open(capsule).manifest.rank == 1
    why = nodes[0].prismdbg("why", run.path)
    assert "node n2: rank 1" in why.out, why.out


@on_nodes
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is missing (apt-get install openmpi-bin)")
def test_mpirun_of_open_mpi_needs_no_job_id(tmp_path: Path) -> None:
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" not in version:
        pytest.skip("mpirun is not Open MPI's (apt-get install openmpi-bin)")
    shared = tmp_path / "shared"
    with two_nodes(shared) as nodes:
        agent, asked, run = shared / "agent", shared / "asked", RunFolder(shared / "run")
        agent.write_text(_AGENT.format(asked=asked))
        agent.chmod(0o755)
        other = nodes[1].start(["sh", "-c", _OTHER_NODE.format(asked=asked)], shared / "n2.txt")
        options = ["--allow-run-as-root", "--host", "n1:1,n2:1", "-np", "2", "--mca", "plm_rsh_agent", str(agent)]
        interface = ["--mca", "oob_tcp_if_include", "eth0", "-x", "GLOO_SOCKET_IFNAME", "-x", "OMP_NUM_THREADS"]
        job = nodes[0].start(["mpirun", *options, *interface, *recorded(run.path)], shared / "n1.txt")
        try:
            ended = job.wait(120)
            assert ended.code == 0, f"{ended.output}\n{other.output}"
            assert str(read_json(run.nodes / "job.json")["id"]).startswith("mpi ")
            is_one_job(run, nodes, ended.output)
        finally:
            job.kill()
            other.kill()


def variables(rank: int, **others: str) -> list[str]:
    """As mpirun of Open MPI 4.1.4 (PMIx 4.2.2) sets them; of Open MPI 5, `prterun-HOST-PID@1` is the namespace."""
    ids = {"PMIX_NAMESPACE": "1104347137", "OMPI_MCA_orte_precondition_transports": "b122754fb55a1146-5845075033fd5838"}
    world = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": str(rank)}
    return ["env", *(f"{name}={value}" for name, value in {**ids, **world, **others}.items())]


@on_nodes
def test_the_variables_of_open_mpi_make_one_job_within_slurm_too(tmp_path: Path) -> None:
    """There mpirun's daemons are a step of Slurm, but the process on the first node is none of it."""
    shared = tmp_path / "shared"
    with two_nodes(shared) as nodes:
        run = RunFolder(shared / "run")
        slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
        lines = [[*variables(0), *recorded(run.path)], [*variables(1, **slurm), *recorded(run.path)]]
        parts = [node.start(line, shared / f"{node.name}.txt") for node, line in zip(nodes, lines, strict=True)]
        try:
            ended = [part.wait(120) for part in parts]
            output = "\n".join(one.output for one in ended)
            assert [one.code for one in ended] == [0, 0], output
            is_one_job(run, nodes, output)
        finally:
            for part in parts:
                part.kill()


def test_an_mpi_launcher_without_an_id_is_told_to_give_one(tmp_path: Path) -> None:
    """mpiexec of MPICH 4.0.2 sets PMI_RANK, PMI_SIZE, PMI_FD, MPI_LOCALRANKID and MPI_LOCALNRANKS, none of which names
    the job. Its processes begin at the same moment."""
    run = tmp_path / "run"
    parts = [
        Job(
            [*CLI, "record", "-o", str(run), "--", "sleep", "2"],
            tmp_path / f"{rank}.txt",
            env=plain_environment(PMI_RANK=str(rank), PMI_SIZE="2", PMI_FD="6"),
        )
        for rank in (0, 1)
    ]
    ended = [part.wait(60) for part in parts]
    assert sorted(one.code for one in ended) == [0, 2], ended
    (refused,) = [one.output for one in ended if one.code == 2]
    assert f"{run} already exists and is not empty; this is one of 2 processes that an MPI launcher" in refused, refused
    assert "give all of them the same --job-id ID" in refused, refused
