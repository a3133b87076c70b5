"""What it costs to go back, to watch for something that does not come, and to trace memory, in the demo's job."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.debugger.debugger import Debugger, debug
from prismdbg.debugger.driver import Settings as DebuggerSettings
from prismdbg.debugger.time_travel import Travel, open_travel
from prismdbg.jobs.replay import runtimes
from prismdbg.jobs.replay.replay import ReplayRequest
from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from prismdbg.session.session import Phase
from tests.bench.jobs import ROOT, BenchError, live_job, prismdbg, recorded, remove_run, run
from tests.bench.settings import Settings
from tests.bench.spread import ratios
from tests.bench.table import Measured, Row

TITLE = "The debugger: ways back, stops and tracing"
BACK_GOAL_S, STOP_GOAL, TRACE_GOAL = 1.0, 1.1, 1.1
INCIDENT = ROOT / "examples" / "incidents" / "nan"
SPACINGS_S = (0.25, 1.0, 4.0)
BARE = "to the NaN, no stop"
TRACED = "operators and memory traced"
LARGE = "the larger job, not traced"
WATCHED = {
    "a stop on collectives that is never hit": ("break all_reduce if bytes > 1e15", STOP_GOAL),
    "a stop on what is sent, never hit": ("break all_reduce if max(abs(input[0])) > 1e30", None),
    "a stop on allocations that is never hit": ("break allocation if size > 1e15", None),
    TRACED: ("trace on", None),
}


def measure(settings: Settings, folder: Path) -> Measured:
    near = _incident(folder / "near", ["--checkpoint-every", 5], corrupt=19)
    far = _incident(folder / "far", ["--window", "all"], corrupt=settings.debugged_steps)
    rows = [row for name in _runtimes() for row in _back(near, name, settings)]
    rows += _forward(far, settings)
    rows += _larger(folder / "larger", settings)
    spaced = [_spaced(far, spacing_s, settings) for spacing_s in SPACINGS_S]
    rows += [row for row, _ in spaced]
    notes = [
        "The demo's job: a GPT of 0.13 M parameters on 4 ranks, a step of some 20 ms. Back: from the NaN to the "
        "collective before, and so on; images lie a second of replay apart.",
        f"Forward: from step {_begin(settings)} to the NaN at step {settings.debugged_steps} of a capsule from the "
        "program's start, in turn; each time in a new process.",
        f"The larger job: a GPT of {settings.size}, batch {settings.batch}, DDP on 2 ranks, {settings.capsule_steps} "
        "steps from a checkpoint. A trace costs by the event, so a step of the demo's 20 ms pays most.",
        "Spacing: the rank runs to the NaN and keeps an image whenever so much replay time has gone by (at least three "
        "times what one costs), then goes back by single collectives. " + " ".join(note for _, note in spaced),
    ]
    return Measured(rows=rows, notes=notes)


def _runtimes() -> Sequence[str]:
    return [name for name in ("docker", "local") if runtimes.make(name).available() is None]


def _incident(folder: Path, options: Sequence[object], corrupt: int) -> Capsule:
    folder.mkdir()
    scores, path = folder / "scores.f32", folder / "run"
    run([sys.executable, str(INCIDENT / "scores.py"), "--out", str(scores), "--step", str(corrupt)], folder / "scores")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    job = [*launcher, str(INCIDENT / "train.py"), "--steps", str(corrupt + 4), "--scores", str(scores)]
    try:
        run(recorded(path, options, job), folder / "job")
        made = read_json(RunFolder(path).supervisor_json).get("capsules", [])
    except BaseException:
        remove_run(path)
        raise
    if len(made) != 1:
        raise BenchError(f"the job made {len(made)} capsules, not one")
    return Capsule.open(Path(made[0]))


@contextmanager
def _debugged(capsule: Capsule, runtime: str, settings: DebuggerSettings) -> Iterator[tuple[Travel, Debugger]]:
    request = ReplayRequest(capsule=capsule, runtime=runtime)
    with open_travel(request, lambda _: None) as travel:
        debugger = debug(travel, lambda _: None, settings=settings)
        debugger.begin()
        yield travel, debugger


def _timed(debugger: Debugger, line: str) -> float:
    began = time.monotonic()
    debugger.do(line)
    if debugger.session.phase is not Phase.STOPPED:
        raise BenchError(f"{line}: the rank is {debugger.session.phase}, not stopped")
    return time.monotonic() - began


def _back(capsule: Capsule, runtime: str, settings: Settings) -> Iterator[Row]:
    steps, runs = [], []
    with _debugged(capsule, runtime, DebuggerSettings()) as (_, debugger):
        for _ in range(settings.ways_back):
            _timed(debugger, f"goto {capsule.manifest.incident.moment}")
            steps += _singly_back(debugger, 4)
        debugger.do("break nan")
        for _ in range(settings.ways_back):
            _timed(debugger, "continue")
            _timed(debugger, "continue")  # past the NaN, to the end of the log
            runs.append(_timed(debugger, "reverse-continue"))
            _timed(debugger, "reverse-next")
    yield Row(what=f"{runtime}: reverse-next", values=steps, unit="s", goal=BACK_GOAL_S, digits=2)
    yield Row(what=f"{runtime}: reverse-continue to the NaN", values=runs, unit="s", digits=2)


def _singly_back(debugger: Debugger, count: int) -> Iterator[float]:
    """Fewer where the rank began less than that before."""
    for number in range(count):
        before = debugger.session.moment
        seconds = _timed(debugger, "reverse-next")
        if debugger.session.moment == before:
            if not number:
                raise BenchError(f"there is nothing before {before}")
            return
        yield seconds


def _begin(settings: Settings) -> int:
    return settings.debugged_steps // 5


def _forward(capsule: Capsule, settings: Settings) -> list[Row]:
    taken: dict[str, list[float]] = {what: [] for what in (BARE, *WATCHED)}
    with _debugged(capsule, "local", DebuggerSettings(checkpoints=False)) as (_, debugger):
        for _ in range(settings.replays):
            for what in taken:
                if what != BARE:
                    debugger.do(WATCHED[what][0])
                debugger.do("restart")
                _timed(debugger, f"goto {_begin(settings)}")
                taken[what].append(_timed(debugger, f"until {capsule.manifest.incident.moment}"))
                debugger.do("delete")
                debugger.do("trace off")
    rows = [Row(what=BARE, values=taken[BARE], unit="s", digits=2)]
    for what, (_, goal) in WATCHED.items():
        paired = ratios(taken[what], taken[BARE])
        rows.append(Row(what=what, against=BARE, values=taken[what], unit="s", ratios=paired, goal=goal, digits=2))
    return rows


def _larger(folder: Path, settings: Settings) -> Iterator[Row]:
    folder.mkdir()
    path = folder / "capsule"
    with live_job(folder, "--size", settings.size, "--batch", settings.batch) as job:
        capture = ["capture", job.run.path, "--rank", 1, "--window", settings.capsule_steps, "-o", path]
        run(prismdbg(*capture), folder / "capture.txt")
    capsule = Capsule.open(path)
    taken: dict[str, list[float]] = {"trace off": [], "trace on": []}
    with _debugged(capsule, "local", DebuggerSettings(checkpoints=False)) as (_, debugger):
        for _ in range(settings.replays):
            for line, seconds in taken.items():
                debugger.do(line)
                debugger.do("restart")
                seconds.append(_timed(debugger, f"until {capsule.manifest.moment_b.step}.1"))
    bare, traced = taken.values()
    yield Row(what=LARGE, values=bare, unit="s", digits=2)
    paired = ratios(traced, bare)
    yield Row(
        what=f"the larger job: {TRACED}",
        against=LARGE,
        values=traced,
        unit="s",
        ratios=paired,
        goal=TRACE_GOAL,
        digits=2,
    )


def _spaced(capsule: Capsule, spacing_s: float, settings: Settings) -> tuple[Row, str]:
    with _debugged(capsule, "local", DebuggerSettings(spacing_s=spacing_s)) as (travel, debugger):
        _timed(debugger, f"goto {capsule.manifest.incident.moment}")
        kept = [checkpoint for checkpoint in travel.checkpoints if checkpoint.number]
        steps = list(_singly_back(debugger, 4 * settings.ways_back))
    size = sum(checkpoint.size_bytes for checkpoint in kept) / 2**20
    cost = median([checkpoint.cost_s for checkpoint in kept] or [0.0])
    what = f"an image every {spacing_s:g} s: a collective back"
    return (
        Row(what=what, values=steps, unit="s", digits=2),
        f"Every {spacing_s:g} s: {len(kept)} images, {size:.0f} MiB, {cost:.2f} s each.",
    )
