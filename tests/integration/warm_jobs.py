"""Starts jobs of `forked_ranks.py`, alone or under `prismdbg record`, in processes that are forked from one that has
imported torch and what `record` needs: these imports are most of what a short job costs.

Who is whose child, who ends with which code, the session, the standard streams, and what /proc tells of command line
and environment are as if each process had been started anew. A job finds its `sitecustomize` and imports the half of a
rank from RUN as at a start; it is told that torch is imported once it asks for it. What is not so: a process has the
hash seed of the server (its environment names it), and what it reads before it imports anything. Where a test asks for
something of that kind, `can_start` says no.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import importlib.machinery
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import forked_ranks
import psutil

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = str(Path(__file__).with_name("forked_ranks.py"))
HASH_SEED = "7"
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "GLIBC_", "MALLOC_", "OMP_", "MKL_", "KMP_")
READ_BY_TORCH = ("TORCH_", "PYTORCH_", "ATEN_", "GLOO_", "CUDA_")
PUT_ANEW = ("PYTHONPATH", "PYTHONHASHSEED")
SHADOWING = ("prismdbg", "prismdbg.py", "sitecustomize.py", "usercustomize.py")
REQUEST_BYTES = 128 << 10
START_BOUND_S = 120.0
RECORDS = ("capsule", "checkpoint", "diagnosis", "jobs", "log", "telemetry")
# Of what the hooks of `sitecustomize` wait for, what is imported here already; in the order in which it is complete.
HOOKED = ("random", "numpy.random", "torch")
PR_SET_MM, PR_SET_MM_MAP, PR_SET_CHILD_SUBREAPER = 35, 14, 36


@dataclass(frozen=True, kw_only=True)
class Start:
    line: list[str]
    environment: dict[str, str]


def can_start(command: Sequence[str], env: Mapping[str, str], usual: Mapping[str, str]) -> bool:
    """Whether it is a job of `forked_ranks.py`, and `env` that of the server as far as a process reads it at its start.
    `usual`: what the server is started with."""
    line = list(command)
    job = _job_of(line)
    if not _is_launcher(job) or (job is not line and _shadows(env.get("PYTHONPATH", ""))):
        return False
    return env.get("PYTHONHASHSEED", HASH_SEED) == HASH_SEED and _at_start(env) == _at_start(usual)


def _shadows(path: str) -> bool:
    """Whether the command itself would be another one with it."""
    return any((Path(folder) / name).exists() for folder in path.split(os.pathsep) if folder for name in SHADOWING)


def is_launcher(command: Sequence[str]) -> bool:
    return _is_launcher(list(command))


def _job_of(line: list[str]) -> list[str]:
    """What follows `record ... --`; else the line itself."""
    if line[1:2] == ["-c"] and line[3:4] == ["record"] and "--" in line:
        return line[line.index("--") + 1 :]
    return line


def _is_launcher(line: list[str]) -> bool:
    return line[:2] == [sys.executable, LAUNCHER] and line[2] != "-m"


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith((*READ_AT_START, *READ_BY_TORCH)) and name not in PUT_ANEW
    }


class Process(psutil.Process):
    """A started one. Its parent, of the server's, waits for it and tells the exit code."""

    def __init__(self, pid: int, parent: socket.socket) -> None:
        super().__init__(pid)
        self._parent = parent
        self.returncode: int | None = None

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except psutil.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._parent.settimeout(timeout)
            try:
                self.returncode = int(self._parent.recv(32))
            except (TimeoutError, BlockingIOError):
                raise psutil.TimeoutExpired(timeout or 0, pid=self.pid) from None
            self._parent.close()
        return self.returncode


def start(
    command: Sequence[str], *, env: Mapping[str, str], usual: Mapping[str, str], cwd: Path | None, output: IO[bytes]
) -> Process:
    """With an empty standard input, and a session of its own."""
    line = list(command)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    place = os.open(cwd or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        request = Start(line=line, environment={"PYTHONHASHSEED": HASH_SEED, **env})
        server = _server(forked_ranks.compiles(Path(_job_of(line)[3])), tuple(sorted(usual.items())))
        socket.send_fds(server, [json.dumps(asdict(request)).encode()], [theirs.fileno(), output.fileno(), place])
    finally:
        theirs.close()
        os.close(place)
    ours.settimeout(START_BOUND_S)
    process = Process(int(ours.recv(32)), ours)
    ours.send(b"go")  # it cannot have ended before
    return process


@cache
def _server(has_compiler: bool, usual: tuple[tuple[str, str], ...]) -> socket.socket:
    """The connection to it. It ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        line = [sys.executable, __file__, str(theirs.fileno()), str(int(has_compiler))]
        environment = {**dict(usual), "PYTHONHASHSEED": HASH_SEED, "PYTHONPATH": ""}
        server = subprocess.Popen(line, cwd=ROOT, env=environment, pass_fds=[theirs.fileno()])
    atexit.register(_end, server, ours)
    return ours


def _end(server: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    server.wait(20)


def main() -> None:
    sys.path[0] = ""  # as of `python -c`
    path = sys.path[1:]
    _import_all(has_compiler=sys.argv[2] == "1")
    asked: Start | None = _serve(socket.socket(fileno=int(sys.argv[1])))
    assert asked is not None
    if not _is_launcher(asked.line):
        command, asked = asked, _held_back()
        if asked is None:
            _be_command(command, path)
            return
    _be_launcher(asked, path)


def _import_all(*, has_compiler: bool) -> None:
    from prismdbg.cli import registry

    registry.entries()["record"].load()
    for package in RECORDS:
        found = importlib.import_module(f"prismdbg.{package}")
        for module in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
            importlib.import_module(module.name)
    forked_ranks.import_torch(has_compiler=has_compiler)


def _serve(connection: socket.socket) -> Start:
    """Returns in the process of each command alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for commands
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 3)
        if not request:
            os._exit(0)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection.close()
            return _forked(request, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _forked(request: bytes, asker_fd: int, output: int, place: int) -> Start:
    """A second fork: the first process tells how the command ends."""
    with socket.socket(fileno=asker_fd) as asker:
        if pid := os.fork():
            os.close(output)
            asker.send(b"%d" % pid)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with suppress(BrokenPipeError):  # nobody waits for it any more
                asker.send(b"%d" % code)
            os._exit(0)
        asker.recv(2)
    os.setsid()
    os.fchdir(place)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.closerange(3, max(nothing, output, place) + 1)
    return Start(**json.loads(request))


def _held_back() -> Start | None:
    """None in the command itself. Else in the job that it starts: it is forked from here, where nothing of the command
    has run, and becomes the command's child when the process between them ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if between := os.fork():
        theirs.close()
        _Popen.where = (ours, between)
        subprocess.Popen = _Popen  # type: ignore[misc]
        return None
    ours.close()
    request = theirs.recv(REQUEST_BYTES)
    if not request:  # the command has ended without a job
        os._exit(0)
    if pid := os.fork():
        theirs.send(b"%d" % pid)
        os._exit(0)
    theirs.recv(2)
    theirs.close()
    return Start(**json.loads(request))


class _Popen(subprocess.Popen[bytes]):
    """Starts the first process of `forked_ranks.py` by what `_held_back` holds back."""

    where: tuple[socket.socket, int] | None = None

    def __init__(self, args: Any, **options: Any) -> None:
        environment = options.get("env")
        self._held = None
        if options.keys() == {"env"} and _is_launcher(list(args)) and can_start(args, environment, os.environ):
            self._held, _Popen.where = _Popen.where, None
        self._environment = environment
        super().__init__(args, **options)

    def _execute_child(self, args: Any, *rest: Any) -> None:
        if self._held is None:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        connection, between = self._held
        with connection:
            _prctl(PR_SET_CHILD_SUBREAPER, 1)
            connection.send(json.dumps(asdict(Start(line=args, environment=self._environment))).encode())
            self.pid = int(connection.recv(32))
            self._child_created = True
            os.waitpid(between, 0)
            _prctl(PR_SET_CHILD_SUBREAPER, 0)
            connection.send(b"go")


def _be_command(command: Start, path: list[str]) -> None:
    _put_on(command)
    sys.path[:] = ["", *_before(command), *path]
    sys.argv[:] = ["-c", *command.line[3:]]
    exec(compile(command.line[2], "<string>", "exec"), _new_main().__dict__)


def _be_launcher(asked: Start, path: list[str]) -> None:
    """As `python forked_ranks.py RANKS SCRIPT [ARGUMENT...]`."""
    _put_on(asked)
    sys.argv[:] = asked.line[1:]
    for name in [name for name in sys.modules if name.partition(".")[0] == "prismdbg"]:
        del sys.modules[name]
    _draw_new_seeds()
    sys.meta_path.insert(0, _Imported())
    sys.path[:] = [*_before(asked), *path]
    importlib.invalidate_caches()
    with suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")
    for name in HOOKED:
        importlib.import_module(name)
    sys.path.insert(0, str(Path(LAUNCHER).parent))
    main = _new_main()
    main.__file__ = LAUNCHER
    exec(compile(Path(LAUNCHER).read_bytes(), LAUNCHER, "exec"), main.__dict__)


def _before(start: Start) -> list[str]:
    return [folder for folder in start.environment.get("PYTHONPATH", "").split(os.pathsep) if folder]


def _new_main() -> types.ModuleType:
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    return main


def _draw_new_seeds() -> None:
    """As at their import. That of `random` is new in every child."""
    import numpy
    import torch

    numpy.random.seed()
    torch.default_generator.seed()


class _Imported:
    """Finds again what is imported already, once: whoever waits for its import hears of it."""

    def __init__(self) -> None:
        self._modules = {name: sys.modules.pop(name) for name in HOOKED}
        self._specs = {name: module.__spec__ for name, module in self._modules.items()}

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name in self._modules else None  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._modules.pop(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._specs[module.__name__]


def _put_on(start: Start) -> None:
    """Also for those who look from outside."""
    os.environ.clear()
    os.environ.update(start.environment)
    sys.orig_argv[:] = start.line
    _tell(start)


def _tell(start: Start) -> None:
    """Makes /proc/PID/cmdline and /proc/PID/environ what they would be."""
    words = b"".join(os.fsencode(word) + b"\0" for word in start.line)
    pairs = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in start.environment.items())
    text = ctypes.create_string_buffer(words + pairs)
    at = ctypes.addressof(text)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    code, end_code, stack, data, end_data, heap = (int(fields[number - 3]) for number in (26, 27, 28, 45, 46, 47))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    places = [code, end_code, data, end_data, heap, libc.sbrk(0), stack]
    texts = [at, at + len(words), at + len(words), at + len(words) + len(pairs)]
    # struct prctl_mm_map: these, then no auxiliary vector (pointer, size) and no other executable.
    layout = (ctypes.c_uint64 * 13)(*places, *texts, 0, 0xFFFFFFFF << 32)
    _prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.addressof(layout), ctypes.sizeof(layout))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(text))  # for as long as the process lives


def _prctl(*arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    whole = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)][:5]
    if libc.prctl(*whole) != 0:
        raise OSError(ctypes.get_errno(), f"prctl{arguments}")


if __name__ == "__main__":
    main()
