"""Which commands are one node's part of a larger job, and which of them belong together."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path

import pytest

from prismdbg.jobs.record.nodes.shared_job import SharedJob, lone_job, processes_without_id, shared_job

TWO = ("torchrun", "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint", "a:1", "train.py")


@pytest.mark.parametrize(
    "command",
    [
        ("torchrun", "--nproc-per-node", "4", "train.py", "--nnodes-of-mine"),
        ("torchrun", "--standalone", "--nnodes", "1", "train.py"),
        ("torchrun", "--nnodes=1:1", "train.py"),
        ("torchrun", "--nnodes", "2", "--standalone", "train.py"),  # torchrun starts one node then
        ("python", "train.py", "--nnodes", "2"),
        ("bash", "launch.sh"),
    ],
)
def test_a_job_of_one_node_is_as_ever(command: tuple[str, ...]) -> None:
    assert shared_job(command, {}) is None


def test_the_same_line_on_two_nodes_is_one_job() -> None:
    one, other = shared_job(TWO, {}), shared_job(TWO, {"HOSTNAME": "n2"})
    assert one is not None and one == other and one.supervisors == 2


def test_what_each_node_has_for_itself_makes_no_other_job() -> None:
    ranks = [("torchrun", f"--node-rank={n}", "--nnodes=2", "train.py") for n in (0, 1)]
    spelled = ("python", "-m", "torch.distributed.run", "--node_rank", "1", "--nnodes=2", "train.py")
    jobs = {shared_job(command, {"PET_NODE_RANK": str(n)}) for n, command in enumerate([*ranks, spelled])}
    assert len(jobs) == 1 and None not in jobs


HOSTS = base64.urlsafe_b64encode(json.dumps({"n1": [0, 1], "n2": [0, 1]}).encode()).decode()


@pytest.mark.parametrize(
    "line",
    [
        "env A=B torchrun --nnodes 2 --node-rank {n} train.py",
        "env -u X PET_NNODES=2 PET_NODE_RANK={n} torchrun train.py",
        "numactl --cpunodebind={n} --membind {n} torchrun --nnodes 2 --node-rank {n} train.py",
        "nice -n 10 python3.11 -u -m torch.distributed.run --nnodes=2 --node_rank={n} train.py",
        "nice taskset -c 0-3 /venv/bin/torchrun --nnodes 2 --node-rank {n} train.py",
        "/usr/bin/python3 /venv/bin/torchrun --nnodes 2 --node-rank {n} train.py",
        "uv run --with accelerate torchrun --nnodes 2 --node-rank {n} train.py",
        "poetry run python -m torch.distributed.run --nnodes 2 --node-rank {n} train.py",
        "python -m debugpy --listen 5678 -m torch.distributed.run --nnodes 2 --node-rank {n} train.py",
        "accelerate launch --num_machines 2 --machine_rank {n} --main_process_ip a train.py",
        "accelerate-launch --num-machines=2 --machine-rank={n} train.py",
        "uv run accelerate launch --num_machines 2 --machine_rank {n} train.py",
        "python -m accelerate.commands.launch --num_machines 2 --machine_rank {n} train.py",
        "deepspeed --num_nodes 2 --no_ssh --node_rank={n} --master_addr=a train.py",
        f"python -u -m deepspeed.launcher.launch --world_info={HOSTS} --node_rank={{n}} train.py",
        "bash -c 'cd /work && source env.sh; exec torchrun --nnodes 2 --node-rank {n} train.py > log.{n} 2>&1'",
        "sh -lc 'N=2 && torchrun --nnodes $N --node_rank ${{RANK_HERE:-{n}}} train.py | tee log.{n}'",
        "bash -e -c 'torchrun $HOW train.py'",
        "bash -c 'A=1 bash -c \"torchrun --nnodes 2 --node_rank {n} train.py\"'",
        "bash -c 'torchrun --nnodes 2 \\\n --node_rank {n} train.py'",
    ],
)
def test_a_launcher_is_seen_behind_what_starts_it(line: str) -> None:
    nodes = [
        shared_job(shlex.split(line.format(n=n)), {"HOW": f"--nnodes=2 --node-rank {n}", "PET_NODE_RANK": str(n)})
        for n in (0, 1)
    ]
    assert nodes[0] is not None and nodes[0] == nodes[1] and nodes[0].supervisors == 2
    assert shared_job(shlex.split(line.format(n=0).replace("train.py", "other.py")), {}) != nodes[0]


@pytest.mark.parametrize(
    "line",
    [
        "accelerate launch train.py",
        "accelerate launch --num_machines 1 --machine_rank 0 train.py",
        "accelerate config --num_machines 2",
        "deepspeed --num_nodes 2 --hostfile hosts train.py",  # over ssh, from here
        "deepspeed --num_nodes 2 --node_rank 0 train.py",
        "deepspeed --no_ssh --num_nodes 1 --node_rank 0 train.py",
        "python -m deepspeed.launcher.launch --world_info=e30= train.py",
        "python -m deepspeed.launcher.launch --world_info=%%% train.py",
        "nice python train.py torchrun --nnodes 2",
        "env ./launch.sh torchrun --nnodes 2",
        "torchrun --nnodes $NODES train.py",
        "bash launch.sh -c 'torchrun --nnodes 2'",
        "bash -c 'echo torchrun --nnodes 2'",
        "bash -c 'torchrun --nnodes $(cat nodes) train.py'",
        "bash -c",
    ],
)
def test_what_is_no_part_of_a_larger_job_is_one_by_itself(line: str) -> None:
    assert shared_job(shlex.split(line), {"HOME": "/nowhere"}) is None


def test_a_line_of_the_shell_that_cannot_be_taken_apart_is_no_job() -> None:
    assert shared_job(("bash", "-c", "torchrun --nnodes 2 'train.py"), {}) is None
    assert shared_job(("nice",) * 5000 + TWO, {}) == shared_job(TWO, {})


def test_each_node_may_have_a_configuration_of_accelerate_of_its_own(tmp_path: Path) -> None:
    jobs = set()
    for n in (0, 1):
        config = tmp_path / f"node{n}.yaml"
        config.write_text(f"distributed_type: MULTI_GPU\nmachine_rank: {n}\nnum_machines: 2\n")
        jobs.add(shared_job(("accelerate", "launch", "--config_file", str(config), "train.py"), {}))
        default = tmp_path / str(n) / "accelerate" / "default_config.yaml"
        default.parent.mkdir(parents=True)
        default.write_text(config.read_text())
        jobs.add(shared_job(("accelerate", "launch", "train.py"), {"HF_HOME": str(tmp_path / str(n))}))
    (job,) = jobs
    assert job is not None and job.supervisors == 2
    config.write_text("num_machines: 1\n")
    assert shared_job(("accelerate", "launch", "--config_file", str(config), "train.py"), {}) is None
    told = shared_job(("accelerate", "launch", "--config_file", str(config), "--num_machines", "3", "train.py"), {})
    assert told is not None and told.supervisors == 3
    unknown = shared_job(("accelerate", "launch", "--machine_rank", "1", "train.py"), {"HF_HOME": "/nowhere"})
    assert unknown is not None and unknown.supervisors == 0


def test_another_line_is_another_job() -> None:
    one, other = shared_job(TWO, {}), shared_job((*TWO, "--lr", "2"), {})
    assert one is not None and other is not None and one.id != other.id
    of_program = [shared_job((*TWO, "--config_file", name), {}) for name in ("a.yaml", "b.yaml")]
    assert of_program[0] != of_program[1], "of torchrun it is none"


def test_the_environment_may_say_how_many_nodes() -> None:
    told = shared_job(("torchrun", "train.py"), {"PET_NNODES": "3"})
    assert told is not None and told.supervisors == 3
    elastic = shared_job(("torchrun", "--nnodes", "1:4", "train.py"), {})
    assert elastic is not None and elastic.supervisors == 0


def test_a_step_of_slurm_is_a_job_and_goes_on_when_it_is_requeued() -> None:
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    first, again = shared_job(TWO, step), shared_job(TWO, {**step, "SLURM_RESTART_COUNT": "1"})
    assert first is not None and again is not None and first.id == again.id == "slurm 7.0"
    assert (first.restart, again.restart) == (0, 1)
    given = shared_job(TWO, {**step, "SLURM_RESTART_COUNT": "2"}, "mine")
    assert given is not None and (given.id, given.restart) == ("given mine", 2)
    assert shared_job(("python", "train.py"), {**step, "SLURM_STEP_NUM_TASKS": "1"}) is None


def test_slurm_names_a_job_of_one_supervisor_alike_when_it_is_requeued() -> None:
    batch = {"SLURM_JOB_ID": "7"}
    again = {**batch, "SLURM_RESTART_COUNT": "2"}
    assert [lone_job(one) for one in (batch, again)] == [
        SharedJob(id="slurm 7", supervisors=1, restart=count) for count in (0, 2)
    ]
    step = lone_job({**batch, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"})
    assert step is not None and step.id == "slurm 7", "of parallel steps each gets any number when they start again"
    assert lone_job({}) is None and lone_job({**batch, "PMI_SIZE": "2"}) is None


def test_an_id_that_was_given_comes_first() -> None:
    given = shared_job(("bash", "launch.sh"), {}, "mine")
    assert given is not None and given.id == "given mine"


def test_what_mpirun_starts_is_a_job() -> None:
    """Its variables as Open MPI 4.1.4 and 5 set them. Within Slurm, its daemons are a step, but not the first node."""
    old = {
        "OMPI_COMM_WORLD_SIZE": "4",
        "PMIX_NAMESPACE": "1104347137",
        "OMPI_MCA_orte_precondition_transports": "b122754fb55a1146-5845075033fd5838",
    }
    new = {"OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "prterun-n1-4711@1"}
    step = {"SLURM_STEP_NUM_TASKS": "3", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    command = ("python", "train.py")
    one, other = shared_job(command, {**old, "OMPI_COMM_WORLD_RANK": "0"}), shared_job(command, {**old, **step})
    assert one is not None and one == other and one.supervisors == 4
    assert one.id == "mpi 1104347137 b122754fb55a1146-5845075033fd5838"
    later = shared_job(command, new)
    assert later is not None and later.id == "mpi prterun-n1-4711@1"
    given = shared_job(command, new, "mine")
    assert given is not None and given.id == "given mine"


def test_srun_with_pmix_is_a_step_of_slurm() -> None:
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    told = shared_job(("python", "train.py"), {**step, "PMIX_NAMESPACE": "slurm.pmix.7.0", "PMI_SIZE": "2"})
    assert told is not None and told.id == "slurm 7.0"


@pytest.mark.parametrize(
    ("environment", "processes"),
    [
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, 2),  # MPICH 4.0.2
        ({"OMPI_COMM_WORLD_SIZE": "3"}, 3),
        ({"OMPI_COMM_WORLD_SIZE": "1", "PMIX_NAMESPACE": "5"}, 1),
        ({}, 0),
    ],
)
def test_what_an_mpi_launcher_gives_no_name_is_no_job(environment: dict[str, str], processes: int) -> None:
    assert shared_job(("python", "train.py"), environment) is None
    assert processes_without_id(environment) == processes
