"""Runs one recorded job, injects faults into it, and compares its end with the bare one's."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from jobs import Job, plain_environment, record_command, run, started, torchrun
from waiting import wait_for

from prismdbg.rank.config import RankConfig
from tests.faults import kinds
from tests.faults.kinds import Fault, Target, Undo

PHASES = 11
PHASE_BOUND_S = 180.0
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`disk`: RUN lies on a small one; `served`: on one that a process serves. `fails_in`: the phase in which a rank
    fails under torchrun, which starts all of them again."""

    name: str
    faults: dict[str, Fault]
    disk: bool = False
    served: bool = False
    clock: bool = False
    fails_in: int | None = None


KINDS = (
    Kind(name="signals", faults=kinds.SIGNAL_FAULTS),
    Kind(name="files", faults=kinds.FILE_FAULTS),
    Kind(name="limits", faults=kinds.LIMIT_FAULTS),
    Kind(name="program", faults=kinds.PROGRAM_FAULTS),
    Kind(name="disk", faults=kinds.DISK_FAULTS | kinds.FILE_FAULTS, disk=True),
    Kind(name="agent", faults=kinds.AGENT_FAULTS),
    Kind(name="supervisor", faults=kinds.SUPERVISOR_FAULTS),
    Kind(name="server", faults=kinds.SERVER_FAULTS, served=True),
    Kind(name="clock", faults=kinds.CLOCK_FAULTS, clock=True),
    Kind(name="restart", faults=kinds.SIGNAL_FAULTS | kinds.FILE_FAULTS, fails_in=4),
    Kind(name="restart-killed", faults=kinds.PROGRAM_FAULTS | kinds.AGENT_FAULTS, fails_in=5),
)


@dataclass(slots=True, kw_only=True)
class Outcome:
    injected: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    output: str = ""


def bare(home: Path) -> list[str]:
    """The results of both ranks without prismdbg."""
    signs = home / "signs"
    signs.mkdir(parents=True)
    for phase in range(PHASES):
        (signs / f"go.{phase}").touch()
    ended = run(_line(signs, None), home / "output.txt", env=plain_environment())
    assert ended.code == 0, ended.output
    return ended.lines("result")


def _line(signs: Path, fails_in: int | None) -> list[str]:
    if fails_in is None:
        return [sys.executable, str(HERE / "launch.py"), str(signs), str(PHASES)]
    line = torchrun(HERE / "rank.py", signs, PHASES, ranks=2)
    return [*line[:3], "--max-restarts", "2", "--monitor-interval", "0.1", *line[3:]]


def inject(kind: Kind, most: int, seed: int, results: Sequence[str], *, python_kernels: bool) -> Outcome:
    """At most so many faults, one a phase. What is wrong with the job's end is in the outcome."""
    outcome, chance = Outcome(), random.Random(seed)
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True)))
        home, signs = base / "home", base / "signs"
        home.mkdir()
        signs.mkdir()
        server = stack.enter_context(_placed(kind, base, home))
        environment = plain_environment(**_settings(kind, signs))
        options = ["--window", "all", "--keep", "0", *(["--python-kernels"] if python_kernels else [])]
        line = record_command(_line(signs, kind.fails_in), home / "run", *options)
        job = stack.enter_context(started(line, base / "output.txt", env=environment))
        target = Target(home=home, signs=signs, sockets=Path(), supervisor=job.process, random=chance, server=server)
        try:
            _go_through(kind, most, job, target, outcome)
            outcome.wrong += _differences(kind, job, target, results)
        except AssertionError as error:
            outcome.wrong.append(str(error))
        outcome.output = job.output
        outcome.wrong += [] if outcome.wrong else _left_behind(base)
        if target.sockets != Path():
            shutil.rmtree(target.sockets, ignore_errors=True)
    return outcome


def _settings(kind: Kind, signs: Path) -> dict[str, str]:
    settings = {"FAIL_IN": str(kind.fails_in)} if kind.fails_in is not None else {}
    if kind.clock:
        (signs / "clock").write_bytes(bytes(8))
        library = signs / "clock.so"
        subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-o", library, HERE / "clock.cpp", "-ldl"], check=True)
        settings |= {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(signs / "clock")}
    return settings


@contextmanager
def _placed(kind: Kind, base: Path, home: Path) -> Iterator[psutil.Process | None]:
    server = None
    if kind.disk:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kinds.DISK_BYTES}", "tmpfs", str(home)], check=True)
    if kind.served:
        (base / "behind").mkdir()
        server = psutil.Popen(["bindfs", "-f", str(base / "behind"), str(home)])
        wait_for(home.is_mount, 20, "the file system to be there")
    try:
        yield server
    finally:
        if server is not None and server.is_running():
            server.resume()
        while home.is_mount():
            subprocess.run(["umount", "--lazy", str(home)], check=True)
        if server is not None:
            with suppress(psutil.NoSuchProcess):
                server.kill()
            server.wait(20)


def _go_through(kind: Kind, most: int, job: Job, target: Target, outcome: Outcome) -> None:
    undo: Undo | None = None
    for phase in range(PHASES):
        signs = [target.signs / f"ready.{rank}.{phase}" for rank in range(2)]
        wait_for(
            lambda signs=signs: all(sign.exists() for sign in signs) or not _lives(target),  # type: ignore[misc]
            PHASE_BOUND_S,
            f"phase {phase}, after {outcome.injected}",
        )
        _undone(undo)
        undo = None
        if phase == 0:  # the log and the agents begin with the first collective
            _say_go(target, phase)
            continue
        if phase == 1:
            target.sockets = Path(RankConfig.load(target.run / "config.json").socket_dir)
            wait_for(lambda: len(list(target.sockets.glob("*.sock"))) == 2, 30, "the agents")
        is_before = target.random.random() < 0.5 or kind.faults is kinds.PROGRAM_FAULTS
        if not is_before:
            _say_go(target, phase)
            target.a_moment()
        if len(outcome.injected) < most:
            undo = _one(kind, target, outcome)
        if is_before:
            _say_go(target, phase)
        if kind.fails_in == phase:
            target.deed = ""
    wait_for(lambda: not _lives(target), PHASE_BOUND_S, f"the ranks to end, after {outcome.injected}")
    _undone(undo)


def _say_go(target: Target, phase: int) -> None:
    new = target.signs / "new"
    new.write_text(target.deed)
    new.rename(target.signs / f"go.{phase}")
    target.deed = ""


def _one(kind: Kind, target: Target, outcome: Outcome) -> Undo | None:
    """Injects a fault that finds something to break."""
    names = list(kind.faults)
    target.random.shuffle(names)
    for name in sorted(names, key=outcome.injected.count):
        try:
            undo = kind.faults[name](target)
        except (OSError, psutil.Error):
            continue
        outcome.injected.append(name)
        return undo
    return None


def _undone(undo: Undo | None) -> None:
    if undo is not None:
        with suppress(OSError, psutil.Error):  # what was broken is gone altogether
            undo()


def _lives(target: Target) -> bool:
    """The launcher, which outlives the ranks; the supervisor's child, also when that is gone."""
    if target.launcher is None:
        with suppress(psutil.Error):
            target.launcher = next(iter(target.supervisor.children()), None)
        return target.supervisor.is_running() or target.launcher is not None
    return bool(target.launcher.is_running()) and _has(target.launcher, str(target.signs))


def _has(process: psutil.Process, word: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and any(word in part for part in process.cmdline())
    except psutil.Error:
        return False


def _differences(kind: Kind, job: Job, target: Target, results: Sequence[str]) -> list[str]:
    wrong = []
    found = sorted({f"result {rank} {_text(target.signs / f'result.{rank}')}" for rank in range(2)})
    if found != list(results):
        wrong.append(f"results {found}, bare {results}")
    if "supervisor" not in target.gone:
        code = job.wait(60).code
        if code != 0:
            wrong.append(f"`record` ends with {code}, bare with 0")
    if kind.fails_in is None and _text(target.signs / "code") != "0":
        wrong.append(f"the ranks end with {_text(target.signs / 'code')!r}, bare with 0")
    if "Traceback" in job.output and kind.fails_in is None:
        wrong.append("a traceback is in the output")
    return wrong


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _left_behind(base: Path) -> list[str]:
    deadline = time.monotonic() + 10
    while left := [p for p in psutil.process_iter() if _has(p, str(base)) and "bindfs" not in p.name()]:
        if time.monotonic() > deadline:
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            return [f"left behind: {left}"]
        time.sleep(0.05)
    return []
