"""Starts ranks as torchrun does, but forks them from one process that has imported torch, as notebook launchers do:
under torchrun each rank, and torchrun itself, imports it anew, which is three quarters of what a short job costs.

A rank has the environment, session, command line and `__main__` that it has under torchrun. There are no restarts: what
is about those, about torchrun, or about how a process starts takes torchrun. `forked_ranks.py RANKS SCRIPT
[ARGUMENT...]`, and on each of several nodes `forked_ranks.py -m torch.distributed.run --nnodes N --nproc-per-node RANKS
--rdzv-endpoint HOST:PORT SCRIPT [ARGUMENT...]`, by whose words `record` knows the job. HOST is the first node; N is 2.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import gc
import os
import signal
import socket
import sys
import time
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

TERM_BOUND_S = 30.0  # torchrun's
# How often torchrun looks at its ranks. Till then their peers have time to raise, and /proc tells of what one died:
# before Linux 6.15 nothing else does.
LOOK_S = 0.1
# A program with one of these imports what compiles torch programs, only to be told that it is not compiled.
COMPILES = ("optim.", "DistributedDataParallel", "fully_shard", "runpy")

NOT_LEFT = {*sys.stdlib_module_names, "__main__", "prismdbg"}
_imported: list[str] = []  # with torch


@dataclass(frozen=True, kw_only=True)
class Node:
    """Of `nodes` with `count` ranks each, this one. listener: where all ranks meet, on the first node."""

    number: int
    nodes: int
    count: int
    address: str
    port: int
    listener: socket.socket | None


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does
    node, words = _node(sys.argv[1:])
    import_torch(has_compiler=compiles(Path(words[0])))
    _keep_groups()
    gc.freeze()  # else each rank copies all that was imported when it ends: its garbage collector writes to it
    signal.signal(signal.SIGTERM, _interrupted)
    signal.signal(signal.SIGINT, _interrupted)
    ranks = {_forked(local, node, words) for local in range(node.count)}
    sys.exit(_followed(ranks, node.listener))


def _node(words: list[str]) -> tuple[Node, list[str]]:
    """And the script with its arguments."""
    if words[0] != "-m":
        listener = socket.create_server(("localhost", 0))
        port = listener.getsockname()[1]
        return Node(number=0, nodes=1, count=int(words[0]), address="localhost", port=port, listener=listener), words[
            1:
        ]
    _, _, _, nodes, _, count, _, endpoint, *script = words
    address, _, port = endpoint.partition(":")
    first = _listening(address, int(port))
    number = int(first is None)
    return Node(
        number=number, nodes=int(nodes), count=int(count), address=address, port=int(port), listener=first
    ), script


def _listening(address: str, port: int) -> socket.socket | None:
    """None on a node that has another address."""
    try:
        return socket.create_server((address, port))
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        return None


def import_torch(*, has_compiler: bool) -> None:
    """No other thread may be there afterwards: a forked rank would lack it, and keep its locks."""
    atexit.register(_leave_in_memory)  # before torch's own: it is called after them
    import torch.distributed

    if has_compiler:
        import torch._dynamo  # noqa: F401
    threads = list(Path("/proc/self/task").iterdir())
    assert len(threads) == 1, f"a process with {len(threads)} threads must not fork ranks"
    _imported.extend(name for name in sys.modules if name.partition(".")[0] not in NOT_LEFT)
    c_library = ctypes.CDLL(None)
    c_library.on_exit(c_library._exit, None)  # after the destructors of what is loaded later, instead of torch's
    gc.freeze()


def _leave_in_memory() -> None:
    """A process that ends does not take apart what was imported for all of them: it would copy the memory of it first,
    at half a second of CPU time. What the program made is freed as ever."""
    left = [sys.modules.pop(name, None) for name in _imported]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(left))
    ctypes.CDLL(None).fflush(None)


def compiles(script: Path) -> bool:
    """Whether it imports torch._dynamo."""
    text = script.read_text()
    return any(word in text for word in COMPILES) and "import uncompiled" not in text


def _keep_groups() -> None:
    """Till the process ends. A group of gloo's (torch 2.13) that is freed waits for its threads, and may hold Python's
    lock meanwhile; a thread that has not yet let go of its last tensor waits for that lock. Where
    DistributedDataParallel outlives `destroy_process_group`, ranks of a busy machine hang so now and then, also under
    torchrun."""
    from torch.distributed import distributed_c10d as c10d

    kept: list[Any] = []
    make = c10d._new_process_group_helper

    def made_and_kept(*arguments: Any, **options: Any) -> Any:
        made = make(*arguments, **options)
        kept.append(made)
        return made

    c10d._new_process_group_helper = made_and_kept  # type: ignore[assignment]


def _forked(local: int, node: Node, words: list[str]) -> int:
    """The process of a rank."""
    return os.fork() or _be_rank(local, node, words)


def _be_rank(local: int, node: Node, words: list[str]) -> NoReturn:
    os.environ.update(_environment(local, node))
    if node.listener is not None:
        node.listener.close()
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _look_started()
    _run_as_main(words)


def _look_started() -> None:
    """To a recorder, as under torchrun: else it says that no capsule can start the rank."""
    if (runs := sys.modules.get("prismdbg.rank.program.process_runs")) is not None:
        runs._started = runs._known = os.getpid()  # type: ignore[attr-defined]
        seeds: Any = sys.modules["prismdbg.rank.recording.inputs.seeds"]
        seeds._began["random"] = seeds._read_random(sys.modules["random"])


def _environment(local: int, node: Node) -> dict[str, str]:
    """As torchrun 2.13 sets it."""
    rank, world = node.number * node.count + local, node.nodes * node.count
    return {
        "RANK": str(rank),
        "ROLE_RANK": str(rank),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(world),
        "ROLE_WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(node.count),
        "GROUP_RANK": str(node.number),
        "GROUP_WORLD_SIZE": str(node.nodes),
        "ROLE_NAME": "default",
        "MASTER_ADDR": node.address,
        "MASTER_PORT": str(node.port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": str(node.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }


def _run_as_main(arguments: list[str]) -> NoReturn:
    """As `python -u SCRIPT ARGUMENT...`, in this process: its `__main__` is that of the script."""
    script = arguments[0]
    sys.argv[:] = arguments
    sys.orig_argv[:] = [sys.orig_argv[0], "-u", *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    main = types.ModuleType("__main__")
    main.__file__ = script
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    exec(compile(Path(script).read_bytes(), script, "exec"), main.__dict__)
    sys.exit()


def _followed(ranks: set[int], listener: socket.socket | None) -> int:
    """The exit code of the job, as far as it is on this node: where a rank fails, the others are ended."""
    from torch.distributed import TCPStore

    store = None
    if listener is not None:
        address, port = listener.getsockname()[:2]
        store = TCPStore(address, port, None, True, master_listen_fd=os.dup(listener.fileno()))
    try:
        while ranks:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            time.sleep(LOOK_S)
            pid, status = os.wait()
            ranks.discard(pid)
            if status:
                print(f"rank of process {pid} failed: {os.waitstatus_to_exitcode(status)}", file=sys.stderr, flush=True)
                return 1
        return 0
    finally:
        _end(ranks)
        del store


def _end(ranks: set[int]) -> None:
    _signalled(ranks, signal.SIGTERM)
    end = time.monotonic() + TERM_BOUND_S
    while ranks and time.monotonic() < end:
        _reap(ranks)
        time.sleep(0.01)
    _signalled(ranks, signal.SIGKILL)


def _reap(ranks: set[int]) -> None:
    for pid in tuple(ranks):
        if os.waitpid(pid, os.WNOHANG)[0]:
            ranks.discard(pid)


def _signalled(ranks: set[int], number: signal.Signals) -> None:
    for pid in ranks:
        os.kill(pid, number)


def _interrupted(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
