"""Which commands are one node's part of a larger job, and which of them belong together."""

from __future__ import annotations

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


def test_another_line_is_another_job() -> None:
    one, other = shared_job(TWO, {}), shared_job((*TWO, "--lr", "2"), {})
    assert one is not None and other is not None and one.id != other.id


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
