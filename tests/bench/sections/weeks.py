"""What the history of a job of weeks costs whoever follows it, and whoever reads it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.manifest import Incident, IncidentKind, Origin
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import NotReplayable
from prismdbg.jobs.capture.assemble import Ingredients, assemble
from prismdbg.jobs.record.incidents import DEFAULT_TRIGGERS, parse_triggers
from prismdbg.jobs.record.supervisor import POLL_S, Policy, Supervisor
from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from prismdbg.log.joining import join
from tests.bench.jobs import (
    PROGRAMS,
    READY_BOUND_S,
    ROOT,
    BenchError,
    prismdbg,
    run,
    started,
    torchrun,
    wait_for,
)
from tests.bench.long_run import PER_STEP, STEPS_PER_SEGMENT, LongRun
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Jobs of weeks: following, reading and capturing with a long history"
RANKS = 8
LOG_BYTES = 256 << 20  # as `record` keeps by default
CAPTURED = 600  # collectives that a capsule has after its start
MEMORY_GOAL_MIB = 500.0
COMMANDS = {"status": 1.0, "why": 10.0}  # goals in seconds of processor time
_WAITING = """
import os, sys
null = os.open(os.devnull, os.O_WRONLY)
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
_, status, used = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
FAST_JOB = 300_000  # collectives of a job that issues as fast as it can
GROWN_GOAL_MIB = 8.0
FASTEST = 10_000
RATES = {200: 1.0, FASTEST: None}  # collectives per second and rank; goals in percent of a processor


def measure(settings: Settings, folder: Path) -> Measured:
    young, old = folder / "young", folder / "old"
    segment = STEPS_PER_SEGMENT * PER_STEP
    few = segment + settings.long_log % segment  # as much of the newest segment is filled
    LongRun(young, RANKS, LOG_BYTES).write(few // PER_STEP)
    LongRun(old, RANKS, LOG_BYTES).write(settings.long_log // PER_STEP)
    what = f"{RANKS} ranks after {settings.long_log:,} collectives each"
    rows = [_returned(settings, folder), _seen(settings, folder), _seen_of_all(settings, folder)]
    for command, goal in COMMANDS.items():
        rows += _read([command, str(old)], f"`{command}`, {what}", goal, settings)
    rows.append(_captured({old: settings.long_log, young: few}, what, settings))
    capsule = next(old.parent.glob("old-capsule*"))
    rows += _read(["open", str(capsule)], f"`open` of a capsule to a pipe, {what}", 2.0, settings)
    rows += _read(["open", str(old)], f"`open` of the RUN to a pipe, {what}", 2.0, settings)
    rows += [_peak(command, what) for command in _others(old, str(capsule), folder, settings)]
    for log in RunFolder(old).rank_folders():
        join(log)  # as where `--local` has copied it into RUN
    rows += [_peak([command, str(old)], f"{what}, joined logs") for command in ("why", "open")]
    rows += [_followed(rate, goal, folder, settings) for rate, goal in RATES.items()]
    rows.append(_grown(folder, settings))
    return Measured(
        rows=rows,
        notes=[
            f"Seconds of processor time. Logs are generated (`tests/bench/long_run.py`); of each at most "
            f"{LOG_BYTES >> 20} MiB are kept, and a summary of the rest. The goals are for `--collectives 10000000`."
        ],
    )


def _returned(settings: Settings, folder: Path) -> Row:
    count, values = min(settings.long_log // 5, FAST_JOB), []
    for number in range(settings.job_rounds):
        line = shlex.join(torchrun(1, PROGRAMS / "many_collectives.py", count))
        job = ["sh", "-c", f"{line}; date +left\\ %s.%N"]
        said = run(prismdbg("record", "-o", folder / f"returned-{number}", "--", *job), folder / "returned.txt")
        values.append(time.time() - float(said.partition("left ")[2].split()[0]))
    return Row(
        what=f"`record` returns after a job of one rank with {count:,} all_reduces", values=values, unit="s", goal=1.0
    )


def _seen(settings: Settings, folder: Path) -> Row:
    """A rank that sends NaN and goes on as fast as before; an incident settles for a second before it is told."""
    count, values = min(settings.long_log // 5, FAST_JOB), []
    for number in range(settings.job_rounds):
        path, output = folder / f"seen-{number}", folder / f"seen-{number}.txt"
        job = torchrun(1, PROGRAMS / "many_collectives.py", 4 * count, count)
        with started(prismdbg("record", "-o", path, "--", *job), output):
            supervisor = RunFolder(path).supervisor_json
            wait_for(lambda path=supervisor: read_json(path).get("incidents"), READY_BOUND_S, "the incident")  # type: ignore[misc]
            values.append(time.time() - float(output.read_text().partition("nan ")[2].split()[0]))
    return Row(what="a NaN of a rank that issues as fast as it can is told after", values=values, unit="s", goal=2.0)


def _seen_of_all(settings: Settings, folder: Path) -> Row:
    values = [_told_after_s(folder / f"seen-of-all-{number}") for number in range(settings.job_rounds)]
    rate = f"{FASTEST:,} collectives per second each"
    return Row(what=f"a NaN of one of {RANKS} ranks with {rate} is told after", values=values, unit="s", goal=2.0)


def _told_after_s(path: Path) -> float:
    """Of generated logs, at the pace of the clock. While the supervisor looks nothing is written: that is caught up."""
    long_run = LongRun(path, RANKS, pid=os.getpid())
    policy = Policy(triggers=parse_triggers(DEFAULT_TRIGGERS), log_bytes=LOG_BYTES)
    nan_from, steps_per_look = STEPS_PER_SEGMENT // 3, round(FASTEST * POLL_S / PER_STEP)
    with subprocess.Popen([sys.executable, "-c", ""]) as job:
        supervisor = Supervisor(long_run.run, policy, job, lambda _: None)
        sent_s = began_s = time.monotonic()
        for step, _ in enumerate(long_run.grow(8 * STEPS_PER_SEGMENT, 1, nan_from)):
            if step == nan_from:
                sent_s = time.monotonic()
            time.sleep(max(began_s + step * PER_STEP / FASTEST - time.monotonic(), 0.0))
            if step % steps_per_look == 0:
                supervisor._look(False)
                if step > nan_from and read_json(long_run.run.supervisor_json).get("incidents"):
                    return time.monotonic() - sent_s
    raise BenchError("the NaN was not told")


def _read(command: Sequence[str], what: str, goal: float, settings: Settings) -> list[Row]:
    found = [used(command) for _ in range(settings.replays)]
    return [
        Row(what=what, values=[seconds for seconds, _ in found], unit="s", goal=goal, digits=2),
        Row(what=f"{what}: memory", values=[mib for _, mib in found], unit="MiB", goal=MEMORY_GOAL_MIB, digits=0),
    ]


def _others(run: Path, capsule: str, folder: Path, settings: Settings) -> list[list[str]]:
    """Commands that read the whole log and have no goal in seconds."""
    formats = ("perfetto", "flight-recorder", "chakra")
    kept = (LOG_BYTES // fmt.EVENT_SEGMENT_BYTES - 4) * STEPS_PER_SEGMENT
    oldest = max(settings.long_log // PER_STEP - kept, 0)
    graph = ["graph", "build", str(run), "--mesh", f"dp={RANKS}", "-o", str(folder / "graph")]
    return [
        ["report", str(run), "-o", str(folder / "report.html")],
        ["diff", str(run), "--rank", "0", "--rank", "1"],
        graph,
        [*graph, "--step", str(oldest)],
        *(["export", str(run), "--format", name, "-o", str(folder / name)] for name in formats),
        ["list", str(run.parent)],
        ["gather", str(run), "-o", str(folder / "gathered")],
        ["inspect", capsule],
    ]


def _peak(command: Sequence[str], what: str) -> Row:
    name = " ".join(command[: 2 if command[0] == "graph" else 1])
    name += f" --format {command[3]}" if command[0] == "export" else ""
    of_what = ", of an old step" if "--step" in command else ""
    _, mib = used(command)
    return Row(what=f"`{name}`{of_what}, {what}: memory", values=[mib], unit="MiB", goal=MEMORY_GOAL_MIB, digits=0)


def used(command: Sequence[str]) -> tuple[float, float]:
    """Seconds of processor time, and MiB at most. A small process starts it: the kernel counts the memory of who starts
    a process as that process's own. With bytecode, which an installed prismdbg has; without it, each start would
    compile all modules that the command imports."""
    line = [sys.executable, "-S", "-c", _WAITING, *map(str, prismdbg(*command))]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    said = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout.split()
    code, seconds, peak_kib = int(said[0]), float(said[1]), int(said[2])
    if code not in (0, 1, ExitCode.INCONCLUSIVE):
        raise BenchError(f"prismdbg {' '.join(command)}: exit code {code}")
    return seconds, peak_kib / 1024


def _captured(runs: Mapping[Path, int], what: str, settings: Settings) -> Row:
    """The host's part: what a rank is parked and dumped for has nothing to do with its log."""

    def seconds(path: Path) -> float:
        return _seconds(lambda: _capsule(path, runs[path]))

    pairs = [tuple(map(seconds, runs)) for _ in range(4 * settings.replays)]
    return Row(
        what=f"a capsule of a rank, {what}",
        against=f"after {list(runs.values())[1]:,}",
        values=[old_s for old_s, _ in pairs],
        ratios=[old_s / young_s for old_s, young_s in pairs],
        unit="s",
        digits=3,
        goal=1.1,
    )


def _seconds(action: Callable[[], None]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began


def _capsule(path: Path, collectives: int) -> None:
    for there in path.parent.glob(f"{path.name}-capsule*"):
        shutil.rmtree(there)
    run = RunFolder(path)
    if not run.inject.exists():
        shutil.copytree(ROOT / "prismdbg", run.inject / "prismdbg")
    parts = Ingredients(
        run=run,
        folder=run.ranks / "0",
        output=path.with_name(f"{path.name}-capsule"),
        origin=Origin.IMAGE,
        incident=Incident(kind=IncidentKind.REQUEST, text="generated"),
        past_records=collectives - CAPTURED,
    )
    try:
        assemble(parts)
    except NotReplayable:  # there are no payloads; all the work is done
        return


def _followed(rate: int, goal: float | None, folder: Path, settings: Settings) -> Row:
    """The supervisor's looks at a job that goes on at this rate."""
    looks_per_step = max(round(PER_STEP / (rate * POLL_S)), 1)
    steps_per_look = max(round(rate * POLL_S / PER_STEP), 1)
    path = folder / f"followed-{rate}"
    long_run = LongRun(path, RANKS, pid=os.getpid())
    policy = Policy(triggers=parse_triggers(DEFAULT_TRIGGERS), log_bytes=LOG_BYTES)
    values = []
    with subprocess.Popen([sys.executable, "-c", ""]) as job:
        supervisor = Supervisor(long_run.run, policy, job, lambda _: None)
        steps = max(settings.long_log // 50 // PER_STEP, 10) * steps_per_look
        for number, _ in enumerate(long_run.grow(steps, looks_per_step)):
            if (number + 1) % steps_per_look == 0:
                values.append(_seconds(lambda: supervisor._look(False)))
    share = 100 * sum(values) / len(values) / POLL_S
    return Row(
        what=f"the supervisor of {RANKS} ranks with {rate:,} collectives per second each: share of a processor",
        values=[share],
        unit="%",
        goal=goal,
        digits=2,
    )


def _grown(folder: Path, settings: Settings) -> Row:
    """What the supervisor keeps of a whole job, above what it kept after the first tenth."""
    steps_per_look = 50
    long_run = LongRun(folder / "grown", 2, pid=os.getpid())
    policy = Policy(triggers=parse_triggers(DEFAULT_TRIGGERS), log_bytes=LOG_BYTES // 16)
    used_mib = []
    with subprocess.Popen([sys.executable, "-c", ""]) as job:
        supervisor = Supervisor(long_run.run, policy, job, lambda _: None)
        for number, _ in enumerate(long_run.grow(settings.long_log // PER_STEP, 1)):
            if number % steps_per_look == 0:
                supervisor._look(False)
                used_mib.append(psutil.Process().memory_info().rss / (1 << 20))
    return Row(
        what=f"the supervisor's memory: what {settings.long_log:,} collectives of 2 ranks add to the first tenth",
        values=[used_mib[-1] - used_mib[len(used_mib) // 10]],
        unit="MiB",
        goal=GROWN_GOAL_MIB,
        digits=1,
    )
