"""Slurm on the two nodes of `two_nodes`: munged and slurmd on each, slurmctld on the first. Nothing of it listens
outside of their network, and all of it goes with the nodes."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from jobs import ROOT
from two_nodes import Node, node_environment, two_nodes, why_impossible
from waiting import wait_for

DAEMONS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "scancel", "squeue")
PACKAGES = "munge slurmctld slurmd slurm-client"
START_S = 60.0
_CONFIGURATION = """
ClusterName=two
SlurmctldHost=n1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=60
SlurmdTimeout=15
StateSaveLocation=/run/slurmctld
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={logs}/slurmctld.log
SlurmdLogFile={logs}/slurmd-%n.log
NodeName=n1 NodeAddr=10.77.0.1 CPUs={cpus}
NodeName=n2 NodeAddr=10.77.0.2 CPUs={cpus}
PartitionName=debug Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""
_MUNGED = """
mkdir -p /run/munge /run/slurmctld /run/slurmd
chmod 755 /run/munge
exec munged --foreground --force --key-file="$1" --pid-file=/run/munge/munged.pid --seed-file=/run/munge/seed \
    --log-file=/run/munge/munged.log
"""


@functools.cache
def why_no_slurm() -> str:
    """Why Slurm cannot run here; empty where it can."""
    missing = [tool for tool in DAEMONS if shutil.which(tool, path=_path()) is None]
    return why_impossible() or (f"no {', '.join(missing)} (apt-get install {PACKAGES})" if missing else "")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """`one` has the controller. shared: the folder that both nodes see."""

    one: Node
    two: Node
    shared: Path
    configuration: Path
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, *command: object, node: Node | None = None, bound_s: float = 60.0) -> str:
        """What a command of Slurm prints."""
        done = self._said(command, node or self.one, bound_s)
        assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"
        return done.stdout

    def sbatch(self, *words: object, become: Sequence[object] = ()) -> int:
        """The job's number. `words`: options, the script, its arguments. become: a command that makes another user."""
        return int(self.run(*become, "sbatch", "--parsable", *words).split(";")[0])

    def state(self, job: int) -> str:
        """`RUNNING`, say."""
        shown = self.run("scontrol", "show", "job", job)
        return shown.partition("JobState=")[2].split()[0]

    def wait_for_state(self, job: int, *states: str, bound_s: float = 180.0) -> str:
        wait_for(lambda: self.state(job) in states, bound_s, f"job {job} to be {' or '.join(states)}")
        return self.state(job)

    def start(self, *command: object, node: Node) -> None:
        """A daemon, in the foreground of its own session, which goes with the node."""
        self.daemons.append(
            subprocess.Popen(
                node.line(command),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )

    def environment(self) -> dict[str, str]:
        paths = os.pathsep.join([str(ROOT), str(ROOT / "tui")])
        return {**node_environment(), "SLURM_CONF": str(self.configuration), "PATH": _path(), "PYTHONPATH": paths}

    def _said(self, command: Sequence[object], node: Node, bound_s: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            node.line(command),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=bound_s,
            check=False,
        )


@contextmanager
def slurm_cluster(home: Path) -> Iterator[Cluster]:
    """Both nodes idle, waiting for jobs."""
    shared = home / "shared"
    with two_nodes(shared) as (one, other):
        cluster = Cluster(one=one, two=other, shared=shared, configuration=shared / "slurm" / "slurm.conf")
        logs = cluster.configuration.parent
        logs.mkdir()
        cluster.configuration.write_text(_CONFIGURATION.format(logs=logs, cpus=os.cpu_count()))
        key = logs / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        for node in (one, other):
            cluster.start("bash", "-c", _MUNGED, "bash", key, node=node)
            wait_for(lambda n=node: _has_munge(cluster, n), START_S, f"munged of {node.name}")  # type: ignore[misc]
        cluster.start("slurmctld", "-D", "-c", node=one)
        for node in (one, other):
            cluster.start("slurmd", "-D", "-c", "-N", node.name, node=node)
        wait_for(lambda: _idle(cluster) == 2, START_S, f"both nodes to be idle (see {logs})")
        yield cluster
    for daemon in cluster.daemons:
        daemon.wait(20)


def _path() -> str:
    """With prismdbg and torchrun as a user's virtual environment brings them, and daemons."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def _has_munge(cluster: Cluster, node: Node) -> bool:
    return cluster._said(["munge", "-n"], node, 20).returncode == 0


def _idle(cluster: Cluster) -> int:
    return cluster._said(["sinfo", "-h", "-N", "-o", "%T"], cluster.one, 20).stdout.split().count("idle")
