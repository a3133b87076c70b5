"""Jobs as a user starts them, recorded; their ranks replayed alone from the start. Every wait is bounded."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil
import warm_jobs
from waiting import wait_for

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.reader import read_log
from prismdbg.jobs.capture.agent_sockets import make_socket_dir
from prismdbg.jobs.injection import cache_dir, job_environment, make_inject_folder
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of
from prismdbg.protocol.client import connect_when_ready
from prismdbg.settings.rank_config import ENVIRONMENT_NAME, Mode, RankConfig

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "gpt"
JOB_BOUND_S = 120.0


def torchrun(script: Path, *arguments: object, ranks: int) -> list[str]:
    """Under a port of its own, as --standalone picks it: several jobs may run on this machine."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [*launcher, str(script), *map(str, arguments)]


def forked(script: Path, *arguments: object, ranks: int) -> list[str]:
    """As `torchrun`, at a quarter of its cost; for what is not about torchrun, nor about how a rank starts or ends."""
    return [
        sys.executable,
        str(Path(__file__).with_name("forked_ranks.py")),
        str(ranks),
        str(script),
        *map(str, arguments),
    ]


def plain_environment(**extra: str) -> dict[str, str]:
    """What a user's shell would hold: nothing of prismdbg and nothing of pytest."""
    dropped = ("PRISMDBG", "PYTEST", "PYTHONPATH", "PYTHONWARNINGS", "PYTHONHASHSEED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **extra}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A process tree that is gone: exit code of its root, and all that it printed."""

    code: int
    output: str

    def lines(self, start: str) -> list[str]:
        """Sorted. Ranks that print at one moment may share a line: its text and its end are two writes."""
        found = (line for line in self.output.splitlines() if line.startswith(start))
        return sorted(part for line in found for part in re.split(f"(?={re.escape(start)})", line) if part)


class Job:
    """A started command whose output goes to a file."""

    def __init__(
        self, command: Sequence[str], output: Path, *, env: Mapping[str, str], cwd: Path | None = None
    ) -> None:
        self._output = output
        with output.open("wb") as sink:
            self.process = _started(list(command), dict(env), cwd, sink)

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, bound_s: float = JOB_BOUND_S) -> Ended:
        """Fails with the output's end where the bound is reached; nothing of the job is left then."""
        try:
            code = self.process.wait(bound_s)
        except psutil.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the job did not end within {bound_s:g} s; its output ends:\n{self.output[-4000:]}"
            ) from None
        return Ended(code=code, output=self.output)

    def kill(self) -> None:
        """Ends the whole tree, by pid."""
        tree = self.family()
        for process in tree:
            _end(process)
        psutil.wait_procs(tree, timeout=20)
        self.process.wait(20)

    def family(self) -> list[psutil.Process]:
        """The process and its descendants that live now."""
        try:
            return [self.process, *self.process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return [self.process]


def _started(
    command: list[str], env: dict[str, str], cwd: Path | None, sink: IO[bytes]
) -> psutil.Popen | warm_jobs.Process:
    usual = plain_environment()
    if warm_jobs.can_start(command, env, usual):
        return warm_jobs.start(command, env=env, usual=usual, cwd=cwd, output=sink)
    return psutil.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=sink,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _end(process: psutil.Process) -> None:
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        pass


@contextmanager
def started(
    command: Sequence[str], output: Path, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[Job]:
    """The job; whatever of it still lives at the end is killed."""
    job = Job(command, output, env=plain_environment() if env is None else env, cwd=cwd)
    try:
        yield job
    finally:
        job.kill()


def run(
    command: Sequence[str],
    output: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    bound_s: float = JOB_BOUND_S,
) -> Ended:
    with started(command, output, env=env, cwd=cwd) as job:
        return job.wait(bound_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A run folder and how the job in it ended."""

    run: RunFolder
    ended: Ended

    def folder(self, rank: int) -> Path:
        return self.run.latest(rank)

    def log(self, rank: int) -> RankLog:
        return read_log(self.folder(rank))

    @property
    def ranks(self) -> list[int]:
        return [rank_of(folder) for folder in self.run.rank_folders()]


def prepare_run(path: Path, *, native: bool, window_steps: int = -1, **options: Any) -> RunFolder:
    """A run folder with what the ranks of a recorded job read; no supervisor."""
    folder = RunFolder(path.resolve())
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.ranks.mkdir()
    make_inject_folder(folder.inject)
    sockets = make_socket_dir()
    config = RankConfig(
        mode=Mode.RECORD,
        socket_dir=str(sockets),
        run=str(folder.path),
        window_steps=window_steps,
        native=native,
        **{"cache_dir": str(cache_dir()), **options},
    )
    config.save(folder.config)
    return folder


def remove_sockets(run: RunFolder) -> None:
    folder = Path(RankConfig.load(run.config).socket_dir)
    for socket in folder.iterdir() if folder.is_dir() else ():
        socket.unlink()
    if folder.is_dir():
        folder.rmdir()


def record(
    command: Sequence[str],
    path: Path,
    *,
    native: bool,
    env: Mapping[str, str] | None = None,
    bound_s: float = JOB_BOUND_S,
    output: Path | None = None,
    **options: Any,
) -> Recorded:
    """Runs the command with the recorder injected, with all payloads unless `window_steps` says otherwise."""
    folder = prepare_run(path, native=native, **options)
    base = dict(plain_environment() if env is None else env)
    if warm_jobs.is_launcher(command):
        base.setdefault("PYTHONHASHSEED", warm_jobs.HASH_SEED)
    environment = job_environment(folder.inject, folder.config, base)
    try:
        ended = run(command, output or folder.path / "output.txt", env=environment, bound_s=bound_s)
    finally:
        remove_sockets(folder)
    return Recorded(run=folder, ended=ended)


def recorded_by_command_line(
    command: Sequence[str],
    folder: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    bound_s: float = JOB_BOUND_S,
) -> Recorded:
    """`prismdbg record -o RUN OPTIONS -- COMMAND`, as a user types it."""
    output = folder.with_suffix(".txt")
    ended = run(record_command(command, folder, *options), output, env=env, bound_s=bound_s)
    return Recorded(run=RunFolder(folder.resolve()), ended=ended)


def record_command(command: Sequence[str], folder: Path, *options: str) -> list[str]:
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from prismdbg.cli.main import main; main()"
    return [sys.executable, "-c", start, "record", "-o", str(folder), *options, "--", *command]


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What a replay said until it finished, or stood still at its first divergence or past the log's end."""

    code: int | None = None
    output: str = ""
    divergence: dict[str, Any] | None = None
    states: list[dict[str, Any]] = field(default_factory=list)
    synthesized: list[dict[str, Any]] = field(default_factory=list)
    tally: dict[str, Any] = field(default_factory=dict)
    exceptions: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    past_the_end: dict[str, Any] | None = None

    def hear(self, event: dict[str, Any]) -> bool:
        """True when nothing more is to come."""
        match event["event"]:
            case "diverged":
                self.divergence, self.tally = event, event["tally"]
                return True
            case "end_of_log":
                self.past_the_end, self.tally = event, event["tally"]
                return True
            case "state":
                self.states.append(event)
            case "synthesized":
                self.synthesized.append(event)
            case "exception":
                self.exceptions.append(event)
            case "note":
                self.notes.append(event["text"])
            case "finished":
                self.tally = event["tally"]
                return True
        return False


def replay(
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    script: Path | None = None,
    arguments: Mapping[str, str] | None = None,
    strict: bool = False,
    bound_s: float = JOB_BOUND_S,
) -> Replayed:
    """Runs one rank again alone. `script` and `arguments` change the program: old text to new text in its command."""
    facts = json.loads((folder / "rank.json").read_text())
    command = [facts["executable"], *facts["orig_argv"][1:]]
    for old, new in {**(arguments or {}), **({facts["argv"][0]: str(script)} if script else {})}.items():
        assert old in command, f"{old!r} is not in {command}"
        command[command.index(old)] = new
    with tempfile.TemporaryDirectory(prefix="prismdbg-") as name:
        home = Path(name)
        environment = {**_replay_environment(facts, folder, home), **(env or {})}
        with started(command, home / "output.txt", env=environment, cwd=Path(facts["cwd"])) as job:
            return _follow(job, home, strict, time.monotonic() + bound_s)


def _replay_environment(facts: dict[str, Any], folder: Path, home: Path) -> dict[str, str]:
    make_inject_folder(home / "inject")
    config = home / "config.json"
    RankConfig(
        mode=Mode.REPLAY, socket_dir=str(home), log=str(folder), rank=facts["rank"], world_size=facts["world_size"]
    ).save(config)
    environment: dict[str, str] = facts["environment"]
    paths = [str(home / "inject"), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths), ENVIRONMENT_NAME: str(config)}


def _follow(job: Job, home: Path, strict: bool, end: float) -> Replayed:
    done = Replayed()
    with connect_when_ready(home / "replay.sock", bound_s=60, still_alive=lambda: job.alive) as client:
        wait_for(lambda: client.ask("progress")["stopped"], 60, "the replay to stand at its start")
        client.ask("resume", strict=strict)
        while not done.hear(client.next_event(max(end - time.monotonic(), 0.1), "the end of the replay")):
            pass
    if done.divergence or done.past_the_end:  # it stands still
        done.output = job.output
        return done
    ended = job.wait(60)
    done.code, done.output = ended.code, ended.output
    return done
