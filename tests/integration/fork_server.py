"""A process that forks another one for each request, so that what it has imported is imported once: how it is started
and asked, how each of the others begins, and how it is told how they ended."""

from __future__ import annotations

import atexit
import importlib
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
REQUEST_BYTES = 128 << 10
START_BOUND_S = 120.0


def started(script: str, *arguments: str, environment: Mapping[str, str]) -> socket.socket:
    """The connection to it, over which it is asked. It ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        line = [sys.executable, script, str(theirs.fileno()), *arguments]
        server = subprocess.Popen(line, cwd=ROOT, env=dict(environment), pass_fds=[theirs.fileno()])
    atexit.register(_end, server, ours)
    return ours


def _end(server: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    server.wait(20)


def text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n").replace("\r", "\n")


def import_packages(names: Iterable[str]) -> None:
    """All of prismdbg's packages of these names."""
    for name in names:
        package = importlib.import_module(f"prismdbg.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def request_of(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Returns in a process of its own for each request, with the descriptors that came with it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for the others
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 4)
        if not request:
            os._exit(0)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection.close()
            return request, list(descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def fork_and_tell(asker: socket.socket, kept: Iterable[int] = ()) -> None:
    """Returns in a child. This process tells the child's PID, then its exit code; it keeps none of `kept` open."""
    if pid := os.fork():
        for descriptor in kept:
            os.close(descriptor)
        asker.send(b"%d" % pid)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(BrokenPipeError):  # nobody waits for it any more
            asker.send(b"%d" % code)
        os._exit(0)


def new_main() -> types.ModuleType:
    """An empty `__main__` without a file, as of `python -c`: what the process spawns would run this one's again."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    return main
