"""`prismdbg record`: starts the job with the recorder injected and stays as its supervisor on this node."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from prismdbg.errors import PrismError, UsageError
from prismdbg.jobs.capture.agent_sockets import make_socket_dir
from prismdbg.jobs.capture.capture import Say
from prismdbg.jobs.injection import cache_dir, job_environment, make_inject_folder
from prismdbg.jobs.record.supervisor import Policy, Supervisor
from prismdbg.jobs.storage.run_folder import RunFolder, describe_run
from prismdbg.jobs.storage.run_report import report
from prismdbg.settings.rank_config import RANK_MEMORY, Mode, RankConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRequest:
    """`window_steps`: 0 none, -1 everything. `state_every`: steps, 0 never."""

    output: Path
    command: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    window_steps: int = 0
    window_bytes: int = 4 << 30
    state_every: int = 0
    native: bool = True
    memory: bool = False
    memory_cap: int = 0
    policy: Policy


def record(request: RecordRequest, say: Say) -> int:
    """Runs the job to its end; its exit code is the answer."""
    was_there = request.output.exists()
    run = prepare(request)
    keeps_payloads = request.window_steps != 0 or request.state_every > 0
    environment = job_environment(run.inject, run.config, os.environ, is_replayed_from_start=keeps_payloads)
    sockets = RankConfig.load(run.config).socket_dir
    try:
        job = subprocess.Popen(request.command, env=environment)
    except OSError as error:
        shutil.rmtree(sockets, ignore_errors=True)
        _empty(run.path)
        if not was_there:  # else the user's own, maybe a volume
            run.path.rmdir()
        first, why = request.command[0], error.strerror or error
        if first.startswith("-"):  # of ours, mistyped: unknown ones are left to the job
            raise UsageError(f"unknown option {first!r}", hint="see `prismdbg record --help`") from error
        raise UsageError(
            f"{first} cannot be started: {why}", hint="give the path of a program after `--`, as in -- python train.py"
        ) from error
    say = if_possible(say)
    try:
        say(f"recording into {request.output}")
        return Supervisor(run, request.policy, job, say).watch(lambda: _finish(run, request.output, say))
    except (KeyboardInterrupt, SystemExit):  # before signals were passed on
        job.terminate()
        job.wait()
        raise
    finally:
        shutil.rmtree(sockets, ignore_errors=True)


def if_possible(say: Say) -> Say:
    """Whoever reads what is said may be gone, or the disk full that it is written to: no reason to leave the job."""

    def tell(text: str) -> None:
        with contextlib.suppress(OSError):
            say(text)

    return tell


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _finish(run: RunFolder, output: Path, say: Say) -> None:
    """The job's exit code is the answer, whatever became of the run folder."""
    try:
        _drop_unclaimed_traces(run)
    except OSError as error:
        say(f"unclaimed traces cannot be removed: {error}")
    try:
        for line in report(output, is_told=True):
            say(line)
    except (PrismError, OSError) as error:
        say(str(error))


def _drop_unclaimed_traces(run: RunFolder) -> None:
    """Launchers and workers were traced, too, until they turned out to be no ranks."""
    claimed = {(folder / RANK_MEMORY).resolve() for folder in run.rank_folders()}
    for trace in (run.path / RANK_MEMORY).glob("*"):
        if trace not in claimed:
            shutil.rmtree(trace, ignore_errors=True)


def prepare(request: RecordRequest) -> RunFolder:
    """Makes the run folder. `UsageError` where one is there already: nothing recorded is ever overwritten."""
    run = RunFolder.new(request.output)
    make_inject_folder(run.inject)
    config = RankConfig(
        mode=Mode.RECORD,
        socket_dir=str(make_socket_dir()),
        run=str(run.path),
        cache_dir=str(cache_dir()),
        ranks=request.ranks,
        window_steps=request.window_steps,
        window_bytes=request.window_bytes,
        checkpoint_every=request.policy.checkpoint_every,
        state_every=request.state_every,
        nan_check="nan" in request.policy.triggers,  # it looks at every value: not where nobody asks
        native=request.native,
        memory=request.memory,
        memory_cap=request.memory_cap,
    )
    config.save(run.config)
    describe_run(
        run,
        request.command,
        {
            "window_steps": request.window_steps,
            "window_bytes": request.window_bytes,
            "checkpoint_every": request.policy.checkpoint_every,
            "state_every": request.state_every,
            "triggers": dict(request.policy.triggers),
        },
    )
    return run
