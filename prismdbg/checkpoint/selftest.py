"""Does this CRIU dump and restore a process on this machine? Asked once per binary and kernel, remembered."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from prismdbg.checkpoint.bounded import run_bounded
from prismdbg.checkpoint.criu_log import decisive_line
from prismdbg.errors import PrismError, WaitTimeout

BOUND_S = 30.0

# A session leader with a TCP connection, a listening Unix socket and a thread: what every rank has.
_PROCESS = """
import pathlib, socket, sys, threading, time
folder = pathlib.Path(sys.argv[1])
tcp = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(tcp.getsockname()); far, _ = tcp.accept()
local = socket.socket(socket.AF_UNIX); local.bind(str(folder / "s")); local.listen(1)
threading.Thread(target=threading.Event().wait, daemon=True).start()
(folder / "ready").touch()
while not (folder / "go").exists():
    time.sleep(0.01)
(folder / "alive").touch()
"""


def failure(command: Sequence[str], memory: Path) -> str:
    """Why it does not work here; empty when it does."""
    if os.geteuid() != 0:
        return "dumping and restoring need root"
    key = _key(command)
    known = _recall(memory)
    if key not in known:
        known[key] = _try(command)
        memory.parent.mkdir(parents=True, exist_ok=True)
        fresh = memory.with_name(f"{memory.name}.{os.getpid()}")
        fresh.write_text(json.dumps(known, indent=1))
        fresh.replace(memory)
    return known[key]


def _key(command: Sequence[str]) -> str:
    status = Path(command[-1]).stat()
    return f"{command[-1]}:{status.st_size}:{status.st_mtime_ns}:{os.uname().release}"


def _recall(memory: Path) -> dict[str, str]:
    try:
        return {str(key): str(value) for key, value in json.loads(memory.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _try(command: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory(prefix="prismdbg-criu-") as name:
        folder = Path(name)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROCESS, name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return _dump_and_restore(command, process.pid, folder)
        except PrismError as error:
            return str(error)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _dump_and_restore(command: Sequence[str], pid: int, folder: Path) -> str:
    _wait_for(folder / "ready", "the process to dump")
    common = ["-D", str(folder)]
    dump = [*command, "dump", "-t", str(pid), *common, "-v4", "-o", "dump.log"]
    dump += ["--tcp-established", "--ext-unix-sk", "--network-lock", "skip"]
    dumped = run_bounded(dump, timeout_s=BOUND_S, what="criu dump in its self-test")
    if dumped.returncode != 0:
        return "the self-test's dump failed: " + _said(folder / "dump.log", dumped.output)
    (folder / "s").unlink(missing_ok=True)
    (folder / "go").touch()
    # A PID namespace of its own; criu is its first process, so nothing outlives the call.
    restore = ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child", *command, "restore", *common]
    restore += ["-v4", "-o", "restore.log", "--tcp-close", "--ext-unix-sk"]
    restored = run_bounded(restore, timeout_s=BOUND_S, what="criu restore in its self-test")
    if not (folder / "alive").exists():
        return "the self-test's restore failed: " + _said(folder / "restore.log", restored.output)
    return ""


def _said(log: Path, output: str) -> str:
    """From its log; where it failed before it opened one, from its output."""
    text = log.read_text(errors="replace") if log.exists() else output
    return decisive_line(text) or "it gave no reason"


def _wait_for(path: Path, what: str) -> None:
    deadline = time.monotonic() + BOUND_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise WaitTimeout(f"waited {BOUND_S:g} s for {what}", hint="try again when the machine is less busy")
        time.sleep(0.01)
