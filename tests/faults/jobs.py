"""Runs one recorded job, injects faults into it, and compares its end with the bare one's."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from file_server import FileServer, served
from jobs import Job, plain_environment, record_command, run, started, torchrun
from waiting import wait_for

from prismdbg.settings.rank_config import RankConfig
from tests.faults import kinds
from tests.faults.kinds import Fault, Target, Undo

PHASES = 11
PHASE_BOUND_S = 180.0
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`disk`: RUN lies on a small one; `served`: on one that a process serves. `fails_in`: the phase in which a rank
    fails under torchrun, which starts all of them again. `bare`: without prismdbg, to see what a fault does to that.
    `memory`: with `--memory`."""

    name: str
    faults: dict[str, Fault]
    disk: bool = False
    served: bool = False
    clock: bool = False
    fails_in: int | None = None
    bare: bool = False
    memory: bool = False


KINDS = (
    Kind(name="signals", faults=kinds.SIGNAL_FAULTS),
    Kind(name="files", faults=kinds.FILE_FAULTS),
    Kind(name="limits", faults=kinds.LIMIT_FAULTS),
    Kind(name="program", faults=kinds.PROGRAM_FAULTS),
    Kind(name="disk", faults=kinds.DISK_FAULTS | kinds.FILE_FAULTS, disk=True),
    Kind(name="agent", faults=kinds.AGENT_FAULTS),
    Kind(name="parked", faults=kinds.PARK_FAULTS, memory=True),
    Kind(name="supervisor", faults=kinds.SUPERVISOR_FAULTS),
    Kind(name="server", faults=kinds.SERVER_FAULTS, served=True),
    Kind(name="clock", faults=kinds.CLOCK_FAULTS, clock=True),
    Kind(name="restart", faults=kinds.SIGNAL_FAULTS | kinds.FILE_FAULTS, fails_in=4),
    Kind(name="restart-killed", faults=kinds.PROGRAM_FAULTS | kinds.AGENT_FAULTS, fails_in=5),
)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """`aborted`: how often the job was run again because torch's gloo had ended a process of it."""

    injected: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    output: str = ""
    aborted: int = 0


# What torch's gloo (2.13) does at the end of some processes: of the bare ones here, about one in 15 on a busy machine.
ABORTED = "terminate called without an active exception"
TRIES = 3


def bare(home: Path, tries: int = TRIES) -> list[str]:
    """The results of both ranks without prismdbg."""
    signs = home / f"signs-{tries}"
    signs.mkdir(parents=True)
    for phase in range(PHASES):
        (signs / f"go.{phase}").touch()
    ended = run(_line(signs, None), home / f"output-{tries}.txt", env=plain_environment())
    if ABORTED in ended.output and tries > 1:
        return bare(home, tries - 1)
    assert ended.code == 0, ended.output
    return ended.lines("result")


def _line(signs: Path, fails_in: int | None) -> list[str]:
    if fails_in is None:
        return [sys.executable, str(HERE / "launch.py"), str(signs), str(PHASES)]
    launcher = torchrun(HERE / "rank.py", signs, PHASES, ranks=2)
    options, rank = launcher[3:-3], launcher[-3:]
    watched = [sys.executable, "-I", "-S", str(HERE / "watched.py"), str(signs), sys.executable, *rank]
    restarts = ["--max-restarts", "2", "--monitor-interval", "0.1", "--no-python"]
    return [*launcher[:3], *restarts, *options, *watched]


def inject(kind: Kind, most: int, seed: int, results: Sequence[str], *, python_kernels: bool) -> Outcome:
    """At most so many faults, one a phase. What is wrong with the job's end is in the outcome."""
    for aborted in range(TRIES):
        outcome = _injected(kind, most, seed, results, python_kernels=python_kernels)
        outcome.aborted = aborted
        if not outcome.wrong or ABORTED not in outcome.output:
            break
    return outcome


def _injected(kind: Kind, most: int, seed: int, results: Sequence[str], *, python_kernels: bool) -> Outcome:
    outcome, chance = Outcome(), random.Random(seed)
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True)))
        home, signs = base / "home", base / "signs"
        home.mkdir()
        signs.mkdir()
        server = stack.enter_context(_placed(kind, base, home))
        environment = plain_environment(TMPDIR=str(base), **_settings(kind, signs))  # torchrun leaves folders there
        options = ["--window", "all", "--keep", "0", *(["--python-kernels"] if python_kernels else [])]
        options += ["--memory"] if kind.memory else []
        line = _line(signs, kind.fails_in)
        line = line if kind.bare else record_command(line, home / "run", *options)
        job = stack.enter_context(started(line, base / "output.txt", env=environment))
        target = Target(
            home=home,
            signs=signs,
            sockets=base / "none",
            supervisor=job.process,
            random=chance,
            server=server,
            launcher=job.process if kind.bare else None,
        )
        try:
            _go_through(kind, most, target, outcome)
            outcome.wrong += _differences(kind, job, target, results)
        except AssertionError as error:
            outcome.wrong.append(str(error))
            job.kill()
        outcome.output = job.output
        left = _left_behind(base)
        outcome.wrong = outcome.wrong or left
        shutil.rmtree(target.sockets, ignore_errors=True)
    return outcome


def _settings(kind: Kind, signs: Path) -> dict[str, str]:
    settings = {}
    if kind.fails_in is not None:
        # torchrun (torch 2.13) otherwise keeps its store over a restart, and gloo's ranks find the addresses of those
        # that are gone: a bare job then fails again or hangs, about once in six times.
        settings = {"FAIL_IN": str(kind.fails_in), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return settings | (wall_clock(signs) if kind.clock else {})


def wall_clock(folder: Path, ahead_s: int = 0) -> dict[str, str]:
    """Variables that let a process have another one, which FOLDER/clock sets."""
    (folder / "clock").write_bytes(ahead_s.to_bytes(8, sys.byteorder, signed=True))
    library = folder / "clock.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-o", library, HERE / "clock.cpp", "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(folder / "clock")}


@contextmanager
def _placed(kind: Kind, base: Path, home: Path) -> Iterator[FileServer | None]:
    if kind.disk:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kinds.DISK_BYTES}", "tmpfs", str(home)], check=True)
    try:
        with served(home, base) if kind.served else nullcontext() as server:
            yield server
    finally:
        while home.is_mount():
            subprocess.run(["umount", "--lazy", str(home)], check=True)


def _go_through(kind: Kind, most: int, target: Target, outcome: Outcome) -> None:
    undo: Undo | None = None
    chosen = set(target.random.sample(range(1, PHASES), min(most, PHASES - 1)))
    for phase in range(PHASES):
        _await_phase(kind, phase, target, outcome)
        _undone(undo)
        undo = None
        if phase == 0:  # the log and the agents begin with the first collective
            _say_go(target, phase)
            continue
        if phase == 1 and not kind.bare:
            target.sockets = Path(RankConfig.load(target.run / "config.json").socket_dir)
            wait_for(lambda: len(list(target.sockets.glob("*.sock"))) == 2, 30, "the agents")
        is_before = target.random.random() < 0.5 or kind.faults in (kinds.PROGRAM_FAULTS, kinds.PARK_FAULTS)
        # Python takes a program's signal handlers away while it ends: what comes then ends a bare rank, too.
        is_before |= kind.fails_in == phase
        if not is_before:
            _say_go(target, phase)
            target.a_moment()
        left = most - len(outcome.injected)
        if left and (phase in chosen or PHASES - phase <= left):
            undo = _one(kind, target, outcome, is_last=left == 1)
        if is_before:
            _say_go(target, phase)
        if kind.fails_in == phase:
            target.deed = ""
    wait_for(lambda: not _lives(target), PHASE_BOUND_S, f"the ranks to end, after {outcome.injected}")
    _undone(undo)


def _await_phase(kind: Kind, phase: int, target: Target, outcome: Outcome) -> None:
    signs = [target.signs / f"ready.{rank}.{phase}" for rank in range(2)]
    wait_for(
        lambda: all(sign.exists() for sign in signs) or not _lives(target) or _lost(kind, target),
        PHASE_BOUND_S,
        f"phase {phase}, after {outcome.injected}",
    )
    assert all(sign.exists() for sign in signs), f"a rank ended before phase {phase}, after {outcome.injected}"


def _lost(kind: Kind, target: Target) -> bool:
    """Whether a rank is gone that nobody starts again."""
    if kind.fails_in is not None:
        return False
    try:
        return not all(_has(rank, str(target.signs)) for rank in target.ranks())
    except (OSError, ValueError):  # they have not begun
        return False
    except psutil.NoSuchProcess:
        return True


def _say_go(target: Target, phase: int) -> None:
    new = target.signs / "new"
    new.write_text(target.deed)
    new.rename(target.signs / f"go.{phase}")
    target.deed = ""


def _one(kind: Kind, target: Target, outcome: Outcome, *, is_last: bool) -> Undo | None:
    """Injects a fault that finds something to break. What leaves nothing to break comes last."""
    names = list(kind.faults)
    target.random.shuffle(names)
    for name in sorted(names, key=lambda name: (not is_last and name in kinds.NOTHING_AFTER, _count(name, outcome))):
        try:
            undo = kind.faults[name](target)
        except (OSError, psutil.Error):
            continue
        outcome.injected.append(name)
        return undo
    return None


def _count(name: str, outcome: Outcome) -> int:
    return outcome.injected.count(name)


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
    return _is_alive(target.launcher)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _has(process: psutil.Process, word: str) -> bool:
    try:
        return _is_alive(process) and any(word in part for part in process.cmdline())
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
    ended, as_bare = _codes(kind, target.signs), _codes_of_bare(kind)
    if ended != as_bare:
        wrong.append(f"the ranks end with {ended}, bare with {as_bare}")
    if "Traceback" in job.output and kind.fails_in is None:
        wrong.append("a traceback is in the output")
    return wrong


def _codes(kind: Kind, signs: Path) -> dict[str, str]:
    """Of the ranks, by the files that hold them. Where one failed, what becomes of the other in that attempt depends
    on who is first, also bare: it does not count."""
    if kind.fails_in is None:
        return {"code": _text(signs / "code")}
    ended = {path.name: _text(path) for path in sorted(signs.glob("ended.*"))}
    ended.pop("ended.0.0", None)
    return ended


def _codes_of_bare(kind: Kind) -> dict[str, str]:
    """It is started again once: a second time would hide what prismdbg does to it."""
    if kind.fails_in is None:
        return {"code": "0"}
    failed = -signal.SIGKILL if kind.fails_in % 2 else 7  # as `rank.py` fails
    return {"ended.0.1": "0", "ended.1.0": str(int(failed)), "ended.1.1": "0"}


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
