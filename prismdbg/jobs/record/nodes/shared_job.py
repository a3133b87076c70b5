"""Is the command one node's part of a job of several nodes, and of which: what its launcher and its scheduler say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_OWN = frozenset({"--node-rank", "--local-addr"})  # of torchrun's options those that each node has its own value of
_OWN_VARIABLES = frozenset({"PET_NODE_RANK", "PET_LOCAL_ADDR"})
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")


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
    """By torchrun: its command line is the same on all nodes but for what is a node's own."""
    words = _torchrun_words(command)
    if words is None or "--standalone" in words:
        return None
    nodes = _value(words, "--nnodes") or environment.get("PET_NNODES", "1")
    if nodes in ("1", "1:1"):
        return None
    shared = {name: value for name, value in environment.items() if name.startswith("PET_")}
    told = [list(_shared(words)), {name: shared[name] for name in sorted(shared.keys() - _OWN_VARIABLES)}]
    digest = hashlib.sha256(json.dumps(told).encode("utf-8", "surrogateescape")).hexdigest()
    return SharedJob(id=f"torchrun {digest[:16]}", supervisors=_number(nodes))


def _torchrun_words(command: Sequence[str]) -> list[str] | None:
    """What follows the launcher's name; None where the command starts something else."""
    for at, word in enumerate(command):
        if (at == 0 and Path(word).name == "torchrun") or (word in _LAUNCHERS and command[at - 1] == "-m"):
            return list(command[at + 1 :])
    return None


def _named(word: str) -> tuple[str, str, str]:
    name, equals, value = word.partition("=")
    return name.replace("_", "-") if word.startswith("--") else word, equals, value


def _value(words: Sequence[str], option: str) -> str:
    for at, word in enumerate(words):
        name, equals, value = _named(word)
        if name == option:
            return value if equals else "".join(words[at + 1 : at + 2])
    return ""


def _shared(words: Sequence[str]) -> Iterator[str]:
    skip = False
    for word in words:
        name, equals, _ = _named(word)
        if skip or name in _OWN:
            skip = not skip and not equals
        else:
            yield word


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0
