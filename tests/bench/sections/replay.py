"""From a capsule to the first stop, how fast the replay runs, and what log and capsule weigh."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from prismdbg.capsule import checked_json, layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.reader import read_log
from prismdbg.errors import FacilityError
from prismdbg.jobs.capture.capture import socket_of
from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.replay import runtimes
from prismdbg.jobs.replay.compare import Outcome, run_to_end
from prismdbg.jobs.replay.replay import ReplayRequest, open_replay
from prismdbg.jobs.storage.pack import pack
from prismdbg.model.deadline import Deadline
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentClient
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import Engine, connect
from prismdbg.runtime.docker.image import environment_tag
from prismdbg.runtime.environment import Environment
from tests.bench.jobs import BenchError, LiveJob, environment, live_job, prismdbg, run, said_seconds
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Replay: first stop, speed, and what it weighs"
FIRST_STOP_GOAL_S, SPEED_GOAL = 3.0, 1.0
RANK = 1
BOUND_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A capsule, and how its job ran. Bytes are per step and rank."""

    capsule: Capsule
    recorded_steps: Sequence[float]
    event_bytes: float
    payload_bytes: float


def measure(settings: Settings, folder: Path) -> Measured:
    rows: list[Row] = []
    subject = _make(settings, folder)
    with _own_engine(folder) as engine:
        rows += _cold(subject, settings, engine)
        rows += [row for name in ("docker", "local") for row in _warm(subject, settings, name, folder)]
    rows += _weights(subject, folder)
    notes = [
        "First stop: from the call that opens the capsule to the rank standing at its first collective after A, every "
        "connection made. The typed command is that with the start of Python and of the command line. Cold: the image "
        "of the environment is not there and is made of the rank's files (which lie in the page cache); the engine "
        "runs already. The step time is the program's own clock, with every collective compared; recorded are the "
        f"steps before the capture, without a payload window. The capsule holds {settings.capsule_steps} steps.",
    ]
    return Measured(rows=rows, notes=notes)


def _make(settings: Settings, folder: Path) -> Subject:
    path = folder / "capsule"
    with live_job(folder, "--size", settings.size, "--batch", settings.batch) as job:
        before = _written(job)
        job.train(max(settings.capsule_steps, 10))
        after = _written(job)
        steps = list(job.steps(RANK).values())[3:]
        capture = ["capture", job.run.path, "--rank", RANK, "--window", settings.capsule_steps, "-o", path]
        run(prismdbg(*capture), folder / "capture.txt")
    capsule = Capsule.open(path)
    return Subject(
        capsule=capsule,
        recorded_steps=steps,
        event_bytes=(after[1] - before[1]) / (after[0] - before[0]),
        payload_bytes=_payload_bytes(capsule),
    )


def _written(job: LiveJob) -> tuple[int, int]:
    """Steps and bytes of events so far."""
    with AgentClient(socket_of(job.run.latest(RANK))) as agent:
        status = agent.ask("status")
    return int(status["step"]), int(status["event_bytes"])


def _payload_bytes(capsule: Capsule) -> float:
    """Received in a step, the median."""
    sums: dict[int, int] = {}
    for record in read_log(capsule.log).collectives:
        if record.payload is not None:
            sums[record.moment.step] = sums.get(record.moment.step, 0) + record.payload.size_bytes
    return float(median(sums.values()))


@contextmanager
def _own_engine(folder: Path) -> Iterator[Engine | None]:
    """An engine of this run alone, unless the machine has one: its images may be removed. None where none can be."""
    cache = folder / "cache"
    cache.mkdir()
    for part in ("native", "criu"):
        (cache / part).symlink_to(cache_dir() / part)
    before = os.environ.get("PRISMDBG_CACHE")
    os.environ["PRISMDBG_CACHE"] = str(cache)
    daemon = Daemon(cache)
    engine = None
    try:
        if runtimes.make("docker").available() is None:
            engine = connect(daemon)
        yield engine
    finally:
        if engine is not None:
            engine.close()
        daemon.stop()
        shutil.rmtree(Path(daemon.url.removeprefix("unix://")).parent, ignore_errors=True)
        os.environ.pop("PRISMDBG_CACHE")
        if before is not None:
            os.environ["PRISMDBG_CACHE"] = before


def _cold(subject: Subject, settings: Settings, engine: Engine | None) -> list[Row]:
    if engine is None:
        return []
    installed = Environment.from_json(checked_json.read(subject.capsule.path / layout.ENVIRONMENT))
    taken = []
    for _ in range(settings.cold_starts):
        engine.remove_image(environment_tag(installed))
        taken.append(_first_stop(subject.capsule, "docker"))
    os.sync()  # the image's gigabytes: what follows shall not share the disk with them
    what = f"docker, cold: capsule to first stop, with an image of {installed.size_bytes / 1e9:.1f} GB made"
    return [Row(what=what, values=taken, unit="s", digits=2)]


def _warm(subject: Subject, settings: Settings, runtime: str, folder: Path) -> list[Row]:
    if reason := runtimes.make(runtime).available():
        raise FacilityError(f"the {runtime} runtime: {reason}")
    stops, typed, speeds = [], [], []
    for _ in range(settings.replays):
        stops.append(_first_stop(subject.capsule, runtime))
        typed.append(_typed(subject.capsule, runtime, folder))
        speeds.append(_speed(subject.capsule, runtime) * 1e3)
    recorded_ms = median(subject.recorded_steps) * 1e3
    return [
        Row(what=f"{runtime}: capsule to first stop", values=stops, unit="s", digits=2, goal=FIRST_STOP_GOAL_S),
        Row(what=f"{runtime}: the same as a typed command (`debug`)", values=typed, unit="s", digits=2),
        Row(
            what=f"{runtime}: replayed step",
            against=f"recorded step, {recorded_ms:.1f} ms",
            values=speeds,
            unit="ms",
            ratios=[speed / recorded_ms for speed in speeds],
            goal=SPEED_GOAL,
        ),
    ]


def _first_stop(capsule: Capsule, runtime: str) -> float:
    """Seconds until the rank stands at its first collective."""
    first = capsule.manifest.moment_a
    began = time.monotonic()
    with open_replay(ReplayRequest(capsule=capsule, runtime=runtime), _silent) as live:
        live.client.ask("resume", until=str(first), end=live.end_record)
        while (event := live.client.next_event(BOUND_S, "the first stop"))["event"] != "stopped":
            if event["event"] in ("diverged", "finished", "end_of_log"):
                raise BenchError(f"the replay did not stop at {first}: {event}")
        return time.monotonic() - began


def _typed(capsule: Capsule, runtime: str, folder: Path) -> float:
    """`prismdbg debug`, told to go to the first collective, until it shows it."""
    command = prismdbg("debug", capsule.path, "--runtime", runtime)
    began = time.monotonic()
    with (folder / "debug.txt").open("w+") as talk:
        process = subprocess.Popen(
            command, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=talk, text=True
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write("next\n")
            process.stdin.flush()
            first = Moment(capsule.manifest.moment_a.step, capsule.manifest.moment_a.collective)
            shown = next((line for line in process.stdout if str(first) in line), None)
            taken = time.monotonic() - began
            process.stdin.close()
            process.stdout.read()
        finally:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
            process.stdout.close()
        if shown is None:
            talk.seek(0)
            raise BenchError(f"`prismdbg debug` never came to {first}:\n{talk.read()[-2000:]}")
    return taken


def _environment() -> dict[str, str]:
    return {**environment(), "PRISMDBG_CACHE": os.environ["PRISMDBG_CACHE"]}


def _speed(capsule: Capsule, runtime: str) -> float:
    """Seconds of a replayed step, the median; the first was under way at A."""
    with open_replay(ReplayRequest(capsule=capsule, runtime=runtime), _silent) as live:
        verdict = run_to_end(live, until=None, strict=False, deadline=Deadline.after(BOUND_S))
        said = live.output.text()
    if verdict.outcome is not Outcome.IDENTICAL:
        raise BenchError(f"the replay is not identical to the recorded run: {verdict.summary}")
    seconds = list(said_seconds(said, RANK).values())[1:]
    if not seconds:
        raise BenchError(f"the replayed program named no step:\n{said[-500:]}")
    return float(median(seconds))


def _weights(subject: Subject, folder: Path) -> list[Row]:
    manifest = subject.capsule.manifest
    packed = pack(subject.capsule.path, folder / "capsule.tar.zst")

    def mib(prefix: str) -> float:
        return sum(e.size_bytes for name, e in manifest.files.items() if name.startswith(prefix)) / (1 << 20)

    shutil.rmtree(subject.capsule.path)
    return [
        Row(what="log, events of a step and rank", values=[subject.event_bytes / 1024], unit="KiB", digits=2),
        Row(what="payloads of a step and rank", values=[subject.payload_bytes / (1 << 20)], unit="MiB", digits=2),
        Row(what="capsule", values=[manifest.size_bytes / (1 << 20)], unit="MiB"),
        Row(what="capsule: checkpoint", values=[mib(f"{layout.CHECKPOINT}/")], unit="MiB"),
        Row(what="capsule: log", values=[mib(f"{layout.LOG}/")], unit="MiB"),
        Row(what="capsule: the rank's files", values=[mib(f"{layout.FILES}/")], unit="MiB"),
        Row(what="capsule, packed", values=[packed / (1 << 20)], unit="MiB"),
    ]


def _silent(_text: str) -> None:
    """What a replay says of itself is not measured."""
