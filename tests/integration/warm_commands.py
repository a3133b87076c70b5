"""Runs commands of prismdbg in processes that are forked from one that has imported all of it: a command of a test is
short, and most of its time would be its imports.

A command has the process, the environment, the standard streams and the end that `python -c` would give it. What it
reads before it imports anything (`PYTHONPATH`, `LD_PRELOAD`) it cannot get so: `can_run` says where it matters.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import fork_server

ROOT = Path(__file__).resolve().parents[2]
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG")
# What commands import when they are called. Neither torch nor anything that begins a thread is among it.
IMPORTED = ("capsule", "checkpoint", "cli", "debugger", "diagnosis", "jobs", "log", "memory", "render", "runtime")


def can_run(env: Mapping[str, str], usual: Mapping[str, str]) -> bool:
    """Whether `env` is that of the server, as far as a process reads it at its start."""
    return _at_start(env) == _at_start(usual)


def _at_start(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item for item in environment.items() if item[0].startswith(READ_AT_START)))


def run(
    arguments: Sequence[str], *, env: Mapping[str, str], typed: str = "", bound_s: float, cwd: Path = ROOT
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error. Raises `subprocess.TimeoutExpired`."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read, write = os.pipe()
    with (
        ours,
        theirs,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        os.fdopen(write, "wb", 0) as stdin,
    ):
        with os.fdopen(read, "rb"):
            request = json.dumps({"arguments": list(arguments), "environment": dict(env), "cwd": str(cwd)}).encode()
            streams = [read, out.fileno(), err.fileno(), theirs.fileno()]
            socket.send_fds(_server(_at_start(env)), [request], streams)
        theirs.close()
        with suppress(BrokenPipeError):  # it has ended without a look
            stdin.write(typed.encode())
        stdin.close()
        ours.settimeout(fork_server.START_BOUND_S)
        pid = int(ours.recv(32))
        ours.settimeout(bound_s)
        try:
            code = int(ours.recv(32))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(
                list(arguments), bound_s, fork_server.text_of(out), fork_server.text_of(err)
            ) from None
        return code, fork_server.text_of(out), fork_server.text_of(err)


@cache
def _server(at_start: tuple[tuple[str, str], ...]) -> socket.socket:
    """The connection to the one of such an environment."""
    environment = {**dict(at_start), "OMP_NUM_THREADS": "1"}  # else numpy begins threads
    return fork_server.started(__file__, environment=environment)


def _asked(connection: socket.socket) -> list[str]:
    """Returns in the process of each command alone, with its arguments."""
    text, streams = fork_server.request_of(connection)
    request = json.loads(text)
    with socket.socket(fileno=streams.pop()) as asker:
        fork_server.fork_and_tell(asker)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    return list(request["arguments"])


def _import_all() -> None:
    from prismdbg.cli import registry

    for entry in registry.entries().values():
        entry.load()
    fork_server.import_packages(IMPORTED)
    assert "torch" not in sys.modules and len(list(Path("/proc/self/task").iterdir())) == 1
    gc.freeze()


def main() -> None:
    sys.path[0] = ""  # as of `python -c`
    _import_all()
    sys.argv[:] = ["-c", *_asked(socket.socket(fileno=int(sys.argv[1])))]
    from prismdbg.cli.main import main as command

    fork_server.new_main()
    command()


if __name__ == "__main__":
    main()
