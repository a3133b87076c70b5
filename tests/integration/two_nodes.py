"""Two nodes on this machine: a host name, processes, mounts and a network of their own each; one folder that both see.

Each has a private /tmp, /run and /dev/shm. All of a node goes with its first process, also where the test is killed.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from chain import CLI, COMMAND_BOUND_S, Said
from jobs import ROOT, Job, plain_environment
from waiting import wait_for

from tests.faults.jobs import wall_clock

PORT = 29517  # in a network where nobody else is
_PLACE = """
set -e
mount --make-rprivate /
hostname "$1"
mount --rbind "$2" /mnt
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mkdir -p "$2"
mount --rbind /mnt "$2"
umount --recursive /mnt
printf '127.0.0.1 localhost\\n10.77.0.1 n1\\n10.77.0.2 n2\\n' > /tmp/hosts
mount --bind /tmp/hosts /etc/hosts
ip link set lo up
echo ready
sleep infinity & wait
"""
_NEW_PLACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts", "--net", "--mount-proc")
_ENTERED = ("--pid", "--mount", "--uts", "--net")
_numbers = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Node:
    """`first`: its process number 1, as it is here. `settings`: variables of its commands, which enter `entered`."""

    name: str
    address: str
    first: psutil.Process
    home: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    entered: tuple[str, ...] = _ENTERED

    def line(self, command: Sequence[object]) -> list[str]:
        entered = ["nsenter", "--target", str(self.first.pid), *self.entered, "--"]
        settings = [f"{name}={value}" for name, value in self.settings.items()]
        return [*entered, "env", f"--chdir={ROOT}", *settings, *map(str, command)]  # who enters mounts is at their root

    def start(self, command: Sequence[object], output: Path) -> Job:
        """`output`: below what both nodes see. The streams are opened in the node: no checkpoint takes those of another
        place."""
        inside = ["sh", "-c", 'out=$1; shift; exec "$@" </dev/null >"$out" 2>&1', "sh", output, *command]
        return Job(self.line(inside), output, env=node_environment())

    def prismdbg(self, *arguments: object, bound_s: float = COMMAND_BOUND_S) -> Said:
        done = subprocess.run(
            self.line([*CLI, *arguments]),
            env=node_environment(),
            capture_output=True,
            text=True,
            timeout=bound_s,
            check=False,
        )
        assert "Traceback (most recent" not in done.stderr, done.stderr
        return Said(code=done.returncode, out=done.stdout, err=done.stderr)

    def processes(self, *words: str) -> list[psutil.Process]:
        """Those of the node in whose command line each of the words is."""
        namespace = _namespace(self.first.pid)
        found = [process for process in psutil.process_iter() if _namespace(process.pid) == namespace]
        return [process for process in found if all(any(w in part for part in _words(process)) for w in words)]

    def kill(self) -> None:
        """The whole node at once."""
        self.first.send_signal(signal.SIGKILL)
        wait_for(lambda: not _is_there(self.first), 20, f"node {self.name} to be gone")


def node_environment() -> Mapping[str, str]:
    return plain_environment(GLOO_SOCKET_IFNAME="eth0", TP_SOCKET_IFNAME="eth0")


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _is_there(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@functools.cache
def why_impossible() -> str:
    """Why no nodes can be made here; empty where they can."""
    if os.geteuid() != 0:
        return "nodes are namespaces, which need root"
    missing = [tool for tool in ("unshare", "nsenter", "ip", "mount") if shutil.which(tool) is None]
    if missing:
        return f"nodes need {', '.join(missing)} (util-linux, iproute2)"
    tried = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount", "--uts", "--net", "ip", "link", "add", "one", "type", "veth"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return f"no namespaces with a network: {tried.stderr.strip()[:200]}" if tried.returncode else ""


@functools.cache
def has_time_namespaces() -> bool:
    return subprocess.run(["unshare", "--time", "true"], capture_output=True, timeout=30, check=False).returncode == 0


@contextmanager
def two_nodes(home: Path, ahead_s: int = 0) -> Iterator[tuple[Node, Node]]:
    """`home`: the folder that both see, at the same path. `ahead_s`: by how much the second one's clocks are ahead;
    the monotonic one only where the kernel has time namespaces."""
    home.mkdir(parents=True, exist_ok=True)
    settings = wall_clock(home, ahead_s) if ahead_s else {}
    clocks = ("--time", f"--monotonic={ahead_s}", f"--boottime={ahead_s}") if ahead_s and has_time_namespaces() else ()
    holders: list[subprocess.Popen[str]] = []
    try:
        nodes = []
        for number, own, time in ((1, {}, ()), (2, settings, clocks)):
            holder = subprocess.Popen(
                [*_NEW_PLACE, *time, "bash", "-c", _PLACE, "bash", f"n{number}", str(home)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            holders.append(holder)
            assert holder.stdout is not None
            said = holder.stdout.readline()
            assert said == "ready\n", f"node n{number} was not made: {said}"
            (first,) = psutil.Process(holder.pid).children()
            nodes.append(
                Node(
                    name=f"n{number}",
                    address=f"10.77.0.{number}",
                    first=first,
                    home=home,
                    settings=own,
                    entered=(*_ENTERED, *time[:1]),
                )
            )
        _connect(nodes[0], nodes[1])
        yield nodes[0], nodes[1]
    finally:
        for holder in holders:
            holder.kill()
            holder.wait(20)
            if holder.stdout is not None:
                holder.stdout.close()


def _connect(one: Node, other: Node) -> None:
    ends = [f"pd{os.getpid() % 100000}{next(_numbers)}{side}" for side in "ab"]
    _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
    for node, end in zip((one, other), ends, strict=True):
        _ip("link", "set", end, "netns", str(node.first.pid), "name", "eth0")
        subprocess.run(node.line(["ip", "address", "add", f"{node.address}/24", "dev", "eth0"]), check=True, timeout=30)
        subprocess.run(node.line(["ip", "link", "set", "eth0", "up"]), check=True, timeout=30)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=30)


def job_line(script: Path, *arguments: object) -> list[str]:
    """The same on both nodes; at a third of the cost of `torchrun_line`, for what is not about torchrun."""
    forked = [sys.executable, str(Path(__file__).with_name("forked_ranks.py"))]
    return [*forked, *_LAUNCHER, "--rdzv-endpoint", f"10.77.0.1:{PORT}", str(script), *map(str, arguments)]


def torchrun_line(script: Path, *arguments: object) -> list[str]:
    where = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"10.77.0.1:{PORT}"]
    return [sys.executable, *_LAUNCHER, *where, str(script), *map(str, arguments)]


_LAUNCHER = ("-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2")


def record_line(run: Path, job: Sequence[str], *options: object) -> list[str]:
    return [*CLI, "record", "-o", str(run), *map(str, options), "--", *job]
