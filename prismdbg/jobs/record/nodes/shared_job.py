"""Is the command one node's part of a job of several nodes, and of which: what its launcher and its scheduler say."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prismdbg.jobs.record.nodes.launchers import (
    Launch,
    Launcher,
    accelerate_config,
    hosts_of,
    launch_of,
    named,
    value_of,
)

# Of each launcher's options those that each node has its own value of.
_OWN = {
    Launcher.TORCHRUN: frozenset({"--node-rank", "--local-addr"}),
    Launcher.ACCELERATE: frozenset({"--machine-rank", "--config-file"}),
    Launcher.DEEPSPEED: frozenset({"--node-rank"}),
    Launcher.DEEPSPEED_NODE: frozenset({"--node-rank"}),
}
_OWN_VARIABLES = frozenset({"PET_NODE_RANK", "PET_LOCAL_ADDR"})
_NODES = re.compile("[0-9]+(:[0-9]+)?")
_MACHINES = re.compile(r"""^\s*"?num_machines"?\s*:\s*["']?([0-9]+)""", re.MULTILINE)
_MACHINE_RANK = re.compile(r"""^\s*"?machine_rank"?\s*:.*$""", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedJob:
    """`id`: the same wherever a part of this job is started, and in no other job. `supervisors`: how many it will
    have, 0 if that is not known. restart: how often its scheduler has started it again."""

    id: str
    supervisors: int = 0
    restart: int = 0


def shared_job(command: Sequence[str], environment: Mapping[str, str], given: str = "") -> SharedJob | None:
    """None for a job whose supervisor is the only one. `given`: the job's id as the user names it."""
    launched = _launched(command, environment)
    if given:
        supervisors = launched.supervisors if launched else 0
        return SharedJob(id=f"given {given}", supervisors=supervisors, restart=_restart(environment))
    return _mpi_job(environment) or _step(environment) or launched


def lone_job(environment: Mapping[str, str]) -> SharedJob | None:
    """What Slurm calls a job that has one supervisor: it is the same when the job is requeued. None elsewhere. Without
    its step: those that begin at the same time get other numbers then, and each has a RUN of its own."""
    number = environment.get("SLURM_JOB_ID", "")
    if not number or processes_without_id(environment) > 1:
        return None
    return SharedJob(id=f"slurm {number}", supervisors=1, restart=_restart(environment))


def processes_without_id(environment: Mapping[str, str]) -> int:
    """How many processes an MPI launcher has started together without a name for them that all of them know: MPICH's
    and Intel's (PMI_SIZE), and Open MPI before PMIx. 0 where that is not so."""
    if _mpi_job(environment) is not None:
        return 0
    return max(_number(environment.get(name, "")) for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"))


def _mpi_job(environment: Mapping[str, str]) -> SharedJob | None:
    """Of Open MPI, where `mpirun` starts one supervisor for each of several processes. It counts jobs of a host in 16
    bits, and some versions add a random key. Before Slurm: its variables are those of mpirun's daemon on each node."""
    processes, namespace = _number(environment.get("OMPI_COMM_WORLD_SIZE", "")), environment.get("PMIX_NAMESPACE", "")
    if processes < 2 or not namespace:
        return None
    key = environment.get("OMPI_MCA_orte_precondition_transports", "")
    return SharedJob(id=" ".join(filter(None, ("mpi", namespace, key))), supervisors=processes)


def _step(environment: Mapping[str, str]) -> SharedJob | None:
    """Of Slurm, where `srun` starts one supervisor for each of several tasks."""
    tasks = _number(environment.get("SLURM_STEP_NUM_TASKS", ""))
    if tasks < 2:
        return None
    job = ".".join(environment.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return SharedJob(id=f"slurm {job}", supervisors=tasks, restart=_restart(environment))


def _restart(environment: Mapping[str, str]) -> int:
    """Slurm counts how often it has requeued a job, and gives it the same number again."""
    return _number(environment.get("SLURM_RESTART_COUNT", ""))


def _launched(command: Sequence[str], environment: Mapping[str, str]) -> SharedJob | None:
    """By a launcher whose command line is the same on all nodes but for what is a node's own."""
    launch = launch_of(command, environment)
    if launch is None:
        return None
    match launch.launcher:
        case Launcher.TORCHRUN:
            return _torchrun(launch)
        case Launcher.ACCELERATE:
            return _accelerate(launch)
        case _:
            return _deepspeed(launch)


def _torchrun(launch: Launch) -> SharedJob | None:
    words, environment = launch.words, launch.environment
    nodes = value_of(words, "--nnodes") or environment.get("PET_NNODES", "1")
    if "--standalone" in words or not _NODES.fullmatch(nodes) or nodes in ("1", "1:1"):
        return None
    shared = {name: environment[name] for name in sorted(environment) if name.startswith("PET_")}
    told = {name: value for name, value in shared.items() if name not in _OWN_VARIABLES}
    return _named_job(launch, told, _number(nodes))


def _accelerate(launch: Launch) -> SharedJob | None:
    """Each node may have a configuration file of its own, in which only its number differs."""
    config = accelerate_config(launch.words, launch.environment)
    in_config = _MACHINES.search(config)
    nodes = value_of(launch.words, "--num-machines") or (in_config[1] if in_config else "")
    is_part = any(value_of(launch.words, option) for option in ("--machine-rank", "--main-process-ip"))
    if _number(nodes) < 2 and (nodes or not is_part):
        return None
    return _named_job(launch, _MACHINE_RANK.sub("", config), _number(nodes))


def _deepspeed(launch: Launch) -> SharedJob | None:
    """What it starts over ssh itself is not recorded there; else each node starts its own part."""
    if launch.launcher is Launcher.DEEPSPEED_NODE:
        nodes = hosts_of(value_of(launch.words, "--world-info"))
        return _named_job(launch, None, nodes) if nodes > 1 else None
    nodes = _number(value_of(launch.words, "--num-nodes"))
    is_part = "--no-ssh" in {named(word)[0] for word in launch.words} and value_of(launch.words, "--node-rank") != ""
    return _named_job(launch, None, nodes) if is_part and nodes != 1 else None


def _named_job(launch: Launch, also: object, supervisors: int) -> SharedJob:
    """`also`: what, beside its words, is the same on all nodes."""
    told = [list(_shared(launch)), also]
    digest = hashlib.sha256(json.dumps(told).encode("utf-8", "surrogateescape")).hexdigest()
    return SharedJob(id=f"{launch.launcher} {digest[:16]}", supervisors=supervisors)


def _shared(launch: Launch) -> Iterator[str]:
    skip = False
    for word in launch.words:
        name, equals, _ = named(word)
        if skip or name in _OWN[launch.launcher]:
            skip = not skip and not equals
        else:
            yield word


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0
