"""Starts jobs of `forked_ranks.py`, alone or under `prismdbg record`, and emulations in processes that are forked from
one that has imported torch and what these commands need: these imports are most of what a short job costs.

Who is whose child, who ends with which code, the session, the standard streams, and what /proc tells of command line
and environment are as if each process had been started anew. A job finds its `sitecustomize` and imports the half of a
rank from RUN as at a start; it is told that torch is imported once it asks for it. What is not so: a process has the
hash seed of the server (its environment names it), and what it reads before it imports anything. Where a test asks for
something of that kind, `can_start` says no.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.machinery
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

import fork_server
import forked_ranks
import psutil

LAUNCHER = str(Path(__file__).with_name("forked_ranks.py"))
HASH_SEED = "7"
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "GLIBC_", "MALLOC_", "OMP_", "MKL_", "KMP_")
READ_BY_TORCH = ("TORCH_", "PYTORCH_", "ATEN_", "GLOO_", "CUDA_")
QUIET = ["-W", "ignore"]
PUT_ANEW = ("PYTHONPATH", "PYTHONHASHSEED")
SHADOWING = ("prismdbg", "prismdbg.py", "sitecustomize.py", "usercustomize.py")
USED = ("capsule", "checkpoint", "diagnosis", "emulate", "jobs", "log", "telemetry")
# Of what the hooks of `sitecustomize` wait for, what is imported here already; in the order in which it is complete.
HOOKED = ("random", "numpy.random", "torch")
PR_SET_MM, PR_SET_MM_MAP, PR_SET_CHILD_SUBREAPER = 35, 14, 36


@dataclass(frozen=True, kw_only=True)
class Start:
    """descriptors: the numbers of those that it gets, in the order in which they come; for one of a command's."""

    line: list[str]
    environment: dict[str, str]
    descriptors: list[int] = field(default_factory=list)


def can_start(command: Sequence[str], env: Mapping[str, str], usual: Mapping[str, str]) -> bool:
    """Whether it is a job of `forked_ranks.py` or an emulation of a script, and `env` that of the server as far as a
    process reads it at its start. `usual`: what the server is started with."""
    line = list(command)
    job = _job_of(line)
    is_known = _script_of(job) is not None if _is_emulation(line) else _is_launcher(job)
    path = env.get("PYTHONPATH", "")
    if not is_known or _extends_torch(path) or (job is not line and _shadows(path)):
        return False
    return _is_as_usual(env, usual)


def _is_as_usual(env: Mapping[str, str], usual: Mapping[str, str]) -> bool:
    return env.get("PYTHONHASHSEED", HASH_SEED) == HASH_SEED and _at_start(env) == _at_start(usual)


def _shadows(path: str) -> bool:
    """Whether the command itself would be another one with it."""
    return any((Path(folder) / name).exists() for folder in path.split(os.pathsep) if folder for name in SHADOWING)


def _extends_torch(path: str) -> bool:
    """Whether an installed package is there: torch imports some together with itself."""
    return any(next(Path(folder).glob("*.dist-info"), None) for folder in path.split(os.pathsep) if folder)


def is_launcher(command: Sequence[str]) -> bool:
    return _is_launcher(list(command))


def _job_of(line: list[str]) -> list[str]:
    """What follows `record ... --` or `emulate ... --`; else the line itself."""
    if line[1:2] == ["-c"] and line[3:4] in (["record"], ["emulate"]) and "--" in line:
        return line[line.index("--") + 1 :]
    return line


def _is_emulation(line: list[str]) -> bool:
    return line[1:2] == ["-c"] and line[3:4] == ["emulate"]


def _script_of(line: list[str]) -> int | None:
    """Where in `python [-W ignore] SCRIPT [ARGUMENT...]` it is."""
    at = 3 if line[1:3] == QUIET else 1
    is_script = line[:1] == [sys.executable] and len(line) > at and Path(line[at]).suffix == ".py"
    return at if is_script and Path(line[at]).is_file() else None


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
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    usual: Mapping[str, str],
    cwd: Path | None,
    output: IO[bytes],
    errors: IO[bytes] | None = None,
) -> Process:
    """With an empty standard input, and a session of its own. errors: None where they go to `output`."""
    line = list(command)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    place = os.open(cwd or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        request = Start(line=line, environment={"PYTHONHASHSEED": HASH_SEED, **env})
        job = _job_of(line)
        script = job[3 if _is_launcher(job) else _script_of(job) or 0]
        server = _server(forked_ranks.compiles(Path(script)), tuple(sorted(usual.items())))
        streams = [output.fileno(), (errors or output).fileno()]
        socket.send_fds(server, [json.dumps(asdict(request)).encode()], [theirs.fileno(), *streams, place])
    finally:
        theirs.close()
        os.close(place)
    ours.settimeout(fork_server.START_BOUND_S)
    process = Process(int(ours.recv(32)), ours)
    ours.send(b"go")  # it cannot have ended before
    return process


def run(
    command: Sequence[str], *, env: Mapping[str, str], usual: Mapping[str, str], cwd: Path, bound_s: float
) -> subprocess.CompletedProcess[str]:
    """Raises `psutil.TimeoutExpired` once nothing of it is left."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(command, env=env, usual=usual, cwd=cwd, output=out, errors=err)
        try:
            code = process.wait(bound_s)
        except psutil.TimeoutExpired:
            for one in [process, *process.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            raise
        return subprocess.CompletedProcess(list(command), code, fork_server.text_of(out), fork_server.text_of(err))


@cache
def _server(has_compiler: bool, usual: tuple[tuple[str, str], ...]) -> socket.socket:
    environment = {**dict(usual), "PYTHONHASHSEED": HASH_SEED, "PYTHONPATH": ""}
    return fork_server.started(__file__, str(int(has_compiler)), environment=environment)


def main() -> None:
    sys.path[0] = ""  # as of `python -c`
    path = sys.path[1:]
    _import_all(has_compiler=sys.argv[2] == "1")
    asked: Start | None = _asked(socket.socket(fileno=int(sys.argv[1])))
    assert asked is not None
    if asked.line[1] == "-c":
        command, asked = asked, _held_back(is_for_one=not _is_emulation(asked.line))
        if asked is None:
            _be_command(command, path)
            return
    _be_program(asked, path)


def _import_all(*, has_compiler: bool) -> None:
    from prismdbg.cli import registry

    for command in ("record", "emulate"):
        registry.entries()[command].load()
    fork_server.import_packages(USED)
    forked_ranks.import_torch(has_compiler=has_compiler)


def _asked(connection: socket.socket) -> Start:
    """Returns in the process of each command alone."""
    request, (asker_fd, output, errors, place) = fork_server.request_of(connection)
    with socket.socket(fileno=asker_fd) as asker:
        fork_server.fork_and_tell(asker, kept=(output, errors))
        asker.recv(2)
    os.setsid()
    os.fchdir(place)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (errors, 2)):
        os.dup2(source, target)
    os.closerange(3, max(nothing, output, errors, place) + 1)
    return Start(**json.loads(request))


def _held_back(*, is_for_one: bool) -> Start | None:
    """None in the command itself. Else in each process that it starts: it is forked from here, where nothing of the
    command has run, and becomes the command's child when the processes between them end. is_for_one: the first of them
    is then gone, too."""
    command = os.getpid()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if between := os.fork():
        theirs.close()
        _Popen.held = _Held(ours, between if is_for_one else None)
        subprocess.Popen = _Popen  # type: ignore[misc, assignment]
        return None
    ours.close()
    while True:
        request, descriptors, _, _ = socket.recv_fds(theirs, fork_server.REQUEST_BYTES, 8)
        if not request:  # the command has ended
            os._exit(0)
        if (between := os.fork()) == 0:
            if os.fork():
                os._exit(0)
            return _taken_over(theirs, request, descriptors, command)
        os.waitpid(between, 0)
        if is_for_one:
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def _taken_over(connection: socket.socket, request: bytes, received: list[int], command: int) -> Start:
    """Returns once it is the command's child."""
    end = time.monotonic() + fork_server.START_BOUND_S
    while os.getppid() != command:
        assert time.monotonic() < end, "the command is not our parent"
        time.sleep(0.001)
    start = Start(**json.loads(request))
    with connection:
        connection.send(b"%d" % os.getpid())
    free = max([2, *received, *start.descriptors]) + 1
    for number, descriptor in enumerate(received):
        os.dup2(descriptor, free + number)
        os.close(descriptor)
    for number, wanted in enumerate(start.descriptors):
        os.dup2(free + number, wanted)
        os.close(free + number)
    return start


@dataclass(frozen=True)
class _Held:
    """once: the process that ends after the first start."""

    connection: socket.socket
    once: int | None

    def start(self, start: Start, descriptors: list[int]) -> int:
        """Its process: a child of this one."""
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        socket.send_fds(self.connection, [json.dumps(asdict(start)).encode()], descriptors)
        pid = int(self.connection.recv(32))
        _prctl(PR_SET_CHILD_SUBREAPER, 0)
        if self.once is not None:
            os.waitpid(self.once, 0)
            self.connection.close()
        return pid


class _Popen(subprocess.Popen[bytes]):
    """Starts the processes of the job by what `_held_back` holds back, all others as ever."""

    held: _Held | None = None

    def __init__(self, args: Any, **options: Any) -> None:
        self._start, self._given = _held_start(list(args), options) if _Popen.held else (None, [])
        super().__init__(args, **options)

    def _execute_child(self, args: Any, *rest: Any) -> None:
        held = _Popen.held
        if self._start is None or held is None:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        if held.once is not None:
            _Popen.held = None
        self.pid = held.start(self._start, self._given)
        self._child_created = True


def _held_start(line: list[str], options: dict[str, Any]) -> tuple[Start | None, list[int]]:
    """And its descriptors, as this process knows them. None where it is not of the job."""
    streams = {1: options.get("stdout"), 2: options.get("stderr")}
    given = {number: stream for number, stream in streams.items() if stream is not None}
    given |= {number: number for number in options.get("pass_fds", ())}
    if not options.keys() <= {"env", "pass_fds", "stdout", "stderr"} or any(
        not _is_open(one) for one in given.values()
    ):
        return None, []
    if not (_is_launcher(line) or _script_of(line)) or not _is_as_usual(options["env"], os.environ):
        return None, []
    return Start(line=line, environment=dict(options["env"]), descriptors=[*given]), [*given.values()]


def _is_open(stream: object) -> bool:
    """Not to be made first, as a pipe is."""
    return isinstance(stream, int) and stream >= 0


def _be_command(command: Start, path: list[str]) -> None:
    _put_on(command)
    sys.path[:] = ["", *_before(command), *path]
    sys.argv[:] = ["-c", *command.line[3:]]
    exec(compile(command.line[2], "<string>", "exec"), fork_server.new_main().__dict__)


def _be_program(asked: Start, path: list[str]) -> None:
    """As `python [-W ignore] SCRIPT [ARGUMENT...]`."""
    _put_on(asked)
    at = _script_of(asked.line) or 0
    script = asked.line[at]
    sys.argv[:] = asked.line[at:]
    if at > 1:
        sys.warnoptions[:] = ["ignore"]
        warnings.simplefilter("ignore")
    for name in [name for name in sys.modules if name.partition(".")[0] == "prismdbg"]:
        del sys.modules[name]
    _draw_new_seeds()
    sys.meta_path.insert(0, _Imported())
    sys.path[:] = [*_before(asked), *path]
    importlib.invalidate_caches()
    with suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")
    sys.path.insert(0, str(Path(script).resolve().parent))
    main = fork_server.new_main()
    main.__file__ = script
    exec(compile(Path(script).read_bytes(), script, "exec"), main.__dict__)


def _before(start: Start) -> list[str]:
    return [folder for folder in start.environment.get("PYTHONPATH", "").split(os.pathsep) if folder]


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
        if module.__name__ == "torch":  # which imports the others
            for name in HOOKED[:-1]:
                importlib.import_module(name)
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
