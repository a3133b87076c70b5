"""Runs scripts in processes forked from one that has imported torch, the most expensive part of a short script.

For scripts that say nothing of how a process starts. Each has a session, an environment and a `__main__` of its own.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
BOUND_S = 120
Ended = tuple[int, str]  # exit code, and what was printed


def run(*lines: Sequence[object], cwd: Path = ROOT) -> list[Ended]:
    """Scripts with their arguments, at once; what still runs after two minutes is ended by SIGALRM."""
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    with tempfile.TemporaryDirectory() as name:
        outputs = [Path(name) / str(number) for number in range(len(lines))]
        asked = [
            {"line": list(map(str, line)), "output": str(output), "cwd": str(cwd)}
            for line, output in zip(lines, outputs, strict=True)
        ]
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        codes: list[int] = json.loads(server.stdout.readline())
        return [(code, output.read_text()) for code, output in zip(codes, outputs, strict=True)]


@cache
def _server() -> subprocess.Popen[str]:
    """It ends with this process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    line = [sys.executable, __file__]
    server = subprocess.Popen(line, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return server


def _serve() -> None:
    import torch._dynamo
    import torch.distributed  # noqa: F401

    from prismdbg.jobs import injection  # noqa: F401
    from prismdbg.rank.c10d import schemas  # noqa: F401
    from prismdbg.rank.tracing import tracer  # noqa: F401

    assert len(list(Path("/proc/self/task").iterdir())) == 1, "another thread's locks would stay locked"
    gc.freeze()
    for request in sys.stdin:
        pids = [os.fork() or _be(**asked) for asked in json.loads(request)]
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)


def _be(line: list[str], output: str, cwd: str) -> NoReturn:
    signal.alarm(BOUND_S)
    os.setsid()
    os.chdir(cwd)
    sink = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (sink, 1), (sink, 2)):
        os.dup2(source, target)
    os.closerange(3, max(sink, nothing) + 1)
    sys.argv[:] = line
    sys.path[0] = str(Path(line[0]).parent)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=line[0], __builtins__=__builtins__)
    sys.modules["__main__"] = main
    exec(compile(Path(line[0]).read_bytes(), line[0], "exec"), main.__dict__)
    sys.exit()


if __name__ == "__main__":
    _serve()
