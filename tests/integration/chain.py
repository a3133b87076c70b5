"""The command line as a user types it: jobs recorded while they run, captures, replays. Every wait is bounded."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import warm_commands
from jobs import ROOT, Ended, Job, plain_environment, remove_sockets, started
from waiting import wait_for

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.events import RankLog, StepMark
from prismdbg.capsule.log.reader import LogReader, read_log
from prismdbg.capsule.manifest import FileEntry
from prismdbg.jobs.storage.run_folder import RunFolder, read_json

CLI = (sys.executable, "-c", "from prismdbg.cli.main import main; main()")  # from the tree: see `cwd`
COMMAND_BOUND_S = 180.0
JOB_BOUND_S = 180.0
INCIDENTS = ROOT / "examples" / "incidents"
PARTS = Path(__file__).parent / "chain_jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """How a command ended, and its two streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        data = json.loads(self.out)
        assert isinstance(data, dict)
        return data


def prismdbg(
    *arguments: object, env: Mapping[str, str] | None = None, typed: str = "", bound_s: float = COMMAND_BOUND_S
) -> Said:
    environment = dict(plain_environment() if env is None else env)
    line = [str(argument) for argument in arguments]
    if warm_commands.can_run(environment, plain_environment()):
        code, out, err = warm_commands.run(line, env=environment, typed=typed, bound_s=bound_s)
    else:
        code, out, err = _in_a_new_process(line, environment, typed, bound_s)
    assert not re.search("^Traceback", err, re.MULTILINE), err  # the rank's own are indented
    return Said(code=code, out=out, err=err)


def _in_a_new_process(line: list[str], env: dict[str, str], typed: str, bound_s: float) -> tuple[int, str, str]:
    done = subprocess.run(
        [*CLI, *line], cwd=ROOT, env=env, input=typed, capture_output=True, text=True, timeout=bound_s, check=False
    )
    return done.returncode, done.stdout, done.stderr


def replay(capsule: Path, *options: object, runtime: str = "local", code: int = 0) -> dict[str, Any]:
    """The verdict of `prismdbg replay --json`, which must exit with `code`."""
    said = prismdbg("replay", capsule, "--runtime", runtime, "--json", *options)
    assert said.code == code, f"exit {said.code}, not {code}\n{said.out[-3000:]}\n{said.err[-3000:]}"
    return said.json


def assert_identical(verdict: dict[str, Any], capsule: Path) -> None:
    """The whole span was compared, by what the rank sent, and nothing was made up."""
    records = span(capsule)
    tally = verdict["tally"]
    assert verdict["outcome"] == "identical", verdict
    assert (tally["compared"], tally["missing"], tally["synthesized"]) == (len(records), 0, 0), verdict
    assert tally["fingerprints"] == sum(r.fingerprint is not None for r in records) > 0, verdict
    assert verdict["story"] is None


def parameters(ended: Ended) -> list[tuple[str, str]]:
    """What each rank of the GPT's training printed at its end; the lines of two ranks may run into each other."""
    return sorted(re.findall(r"rank (\d+) parameters ([0-9a-f]{16})", ended.output))


def span(path: Path) -> list[Any]:
    """The recorded collectives from A to B."""
    capsule = Capsule.open(path)
    past, last = capsule.rank()["past_records"], capsule.manifest.moment_b
    return [r for r in read_log(capsule.log).collectives if r.record_id >= past and r.moment <= last]


class Recording:
    """A job under `prismdbg record`, while it runs and after."""

    def __init__(self, job: Job, run: RunFolder) -> None:
        self.job, self.run = job, run
        self._readers: dict[int, LogReader] = {}
        self._steps: dict[int, int] = {}

    @property
    def supervisor(self) -> dict[str, Any]:
        return read_json(self.run.supervisor_json)

    @property
    def capsules(self) -> list[Path]:
        return [Path(name) for name in self.supervisor.get("capsules", [])]

    def log(self, rank: int) -> RankLog:
        return read_log(self.run.latest(rank))

    def pid(self, rank: int) -> int:
        return int(read_json(self.run.latest(rank) / "rank.json")["pid"])

    def step(self, rank: int) -> int:
        """The last step in the log; 0 while there is none."""
        if not (self.run.ranks / str(rank) / "rank.json").exists():
            return 0
        reader = self._readers.setdefault(rank, LogReader(self.run.latest(rank)))
        marks = [event.step for event in reader.poll() if isinstance(event, StepMark)]
        self._steps[rank] = max([self._steps.get(rank, 0), *marks])
        return self._steps[rank]

    def wait_for_step(self, rank: int, step: int, bound_s: float = JOB_BOUND_S) -> None:
        self.wait_for(lambda: self.step(rank) >= step, bound_s, f"step {step} of rank {rank}")

    def wait_until_watched(self, *ranks: int) -> None:
        """Till the supervisor, which looks now and then, would see them die: a forked rank is done before that."""

        def are_watched() -> bool:
            files = [self.run.ranks / str(rank) / "rank.json" for rank in ranks]
            return all(file.exists() for file in files) and {*map(self.pid, ranks)} <= watched_by(self.job.process.pid)

        self.wait_for(are_watched, 60, f"the supervisor to watch ranks {ranks}")

    def wait_for(self, condition: Any, bound_s: float, what: str) -> Any:
        """As `wait_for`, and fails at once, with the job's output, where the job has ended meanwhile."""

        met: Any = None

        def met_or_over() -> Any:
            nonlocal met
            met = condition()  # kept: asked again, it may not be met any more
            return met or not self.job.alive

        wait_for(met_or_over, bound_s, what)
        met = met or condition()
        assert met, f"the job ended while a test waited for {what}:\n{self.job.output[-3000:]}"
        return met

    def end(self, bound_s: float = JOB_BOUND_S) -> Ended:
        return self.job.wait(bound_s)

    def stop(self) -> Ended:
        """As Ctrl-C in its terminal: the supervisor passes it on to the job."""
        self.job.process.send_signal(signal.SIGINT)
        return self.job.wait(60)


def watched_by(pid: int) -> set[int]:
    """The processes of which a process has a pidfd."""
    found = set()
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            fields = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
            found.add(int(fields.get("Pid", 0)))
    return found


@contextmanager
def recording(
    command: Sequence[str], home: Path, *options: object, env: Mapping[str, str] | None = None
) -> Iterator[Recording]:
    """`prismdbg record` of `command` into `home/run`. At the end nothing of it lives and its sockets are gone."""
    run = RunFolder(home.resolve() / "run")
    line = [*CLI, "record", "-o", str(run.path), *map(str, options), "--", *command]
    with started(line, home / "output.txt", env=env, cwd=ROOT) as job:
        recorded = Recording(job, run)
        try:
            yield recorded
        finally:
            ranks = [_process(folder) for folder in run.rank_folders()]
            job.kill()
            for process in filter(None, ranks):  # where the supervisor died, the ranks are nobody's children
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            if run.config.exists():
                remove_sockets(run)


def _process(folder: Path) -> psutil.Process | None:
    facts = read_json(folder / "rank.json")
    try:
        process = psutil.Process(int(facts["pid"]))
        return process if str(folder.parent.parent) in process.environ().get("PRISMDBG_CONFIG", "") else None
    except (KeyError, psutil.Error):
        return None


@dataclass(frozen=True)
class Taken:
    """A finished job and what was made of it."""

    recording: Recording
    ended: Ended
    said: tuple[Said, ...] = ()
    capsule: Path = Path()

    @cached_property
    def manifest(self) -> Any:
        return Capsule.open(self.capsule).manifest

    def went_on(self) -> Taken:
        """Itself, where the rank issued collectives after the capsule's end: it was captured from a job that ran."""
        manifest = self.manifest
        last = self.recording.log(manifest.rank).collectives[-1].moment
        assert last > manifest.moment_b, f"the job ended at {last}, as it was captured"
        return self


def altered(source: Path, target: Path, **rank: Any) -> Path:
    """A copy of a capsule whose rank is described otherwise; its manifest agrees, as if it had been recorded so."""
    shutil.copytree(source, target)
    facts = json.loads((source / layout.RANK).read_text()) | rank
    data = json.dumps(facts).encode()
    (target / layout.RANK).write_bytes(data)
    manifest = Capsule.open(source).manifest
    entry = FileEntry(len(data), hashlib.sha256(data).hexdigest())
    whole = replace(manifest, files={**manifest.files, layout.RANK: entry})
    (target / layout.MANIFEST).write_bytes(whole.to_bytes())
    return target
