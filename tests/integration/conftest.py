"""Recordings that several test files look at: each is made once, when the first test asks for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import warm_torch
from chain import INCIDENTS, Taken, prismdbg, recording
from jobs import EXAMPLES, Ended, forked, run
from runtime_places import captured, case, daemon, new_session  # noqa: F401  fixtures of several files
from terminal import Terminal

from prismdbg.jobs.injection import cache_dir

GPT = ("--size", "1m", "--steps", "60", "--log-every", "1")  # long enough to be captured on its way
WINDOW = 3


@pytest.fixture(scope="session")
def bare_gpt(new_session_folder: Callable[[str], Path]) -> Ended:
    """The GPT's training without prismdbg."""
    home = new_session_folder("bare-gpt")
    return run(forked(EXAMPLES / "train_ddp.py", *GPT, ranks=4), home / "output.txt")


@pytest.fixture(scope="session")
def captured_live(new_session_folder: Callable[[str], Path]) -> Callable[[str], Taken]:
    """Rank 1 captured out of the GPT's training, with the native or the Python recorder; the job went on to its end."""

    @cache
    def made(recorder: str) -> Taken:
        _require(recorder)
        home = new_session_folder(f"live-{recorder}")
        capsule = home / "capsule"
        options = ["--python-kernels"] if recorder == "python" else []
        with recording(forked(EXAMPLES / "train_ddp.py", *GPT, ranks=4), home, *options) as job:
            job.wait_for_step(1, 3)
            said = prismdbg("capture", job.run.path, "--rank", 1, "--window", WINDOW, "-o", capsule)
            assert said.code == 0, f"{said.err}\n{job.job.output[-3000:]}"
            return Taken(recording=job, ended=job.end(), said=(said,), capsule=capsule).went_on()

    return made


@pytest.fixture(params=["native", "python"])
def live(request: pytest.FixtureRequest, captured_live: Callable[[str], Taken]) -> Taken:
    return captured_live(request.param)


@pytest.fixture
def captured_live_native(captured_live: Callable[[str], Taken]) -> Taken:
    return captured_live("native")


@pytest.fixture
def terminal(tmp_path: Path, child_environment: dict[str, str]) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    terminal = Terminal(tmp_path / "tmux", child_environment)
    yield terminal
    terminal.end()


def _require(recorder: str) -> None:
    from prismdbg.rank.native import build as native_build

    path, reason = native_build.find(cache_dir())
    if recorder == "native" and path is None:
        pytest.skip(reason)


LATE = ("--step", "40")  # the step in which the corrupt record is met: by then there are checkpoints
# Three times the example's: its steps are so short that the job may end before each rank had a checkpoint.
LONG_STEPS = ("--batch", "24")


@pytest.fixture(scope="session")
def nan_scores(new_session_folder: Callable[[str], Path]) -> Path:
    """Those of `nan_with_checkpoints`."""
    return _scores(new_session_folder("scores"), *LATE, *LONG_STEPS)


def _scores(folder: Path, *options: str) -> Path:
    path, script = folder / "scores.f32", INCIDENTS / "nan" / "scores.py"
    ((code, said),) = warm_torch.run([script, "--out", path, *options])
    assert code == 0, said
    return path


def _nan_job(scores: Path, *options: str, steps: int = 44) -> list[str]:
    return forked(INCIDENTS / "nan" / "train.py", "--steps", str(steps), "--scores", scores, *options, ranks=4)


@pytest.fixture(scope="session")
def nan_early(new_session_folder: Callable[[str], Path]) -> Taken:
    """As the example's: its NaN is at 11.1. What goes back from there, or searches, has less to run again."""
    home = new_session_folder("nan-early")
    with recording(_nan_job(_scores(home), steps=14), home, "--window", "all") as job:
        ended = job.end()
        assert len(job.capsules) == 1, ended.output[-3000:]
        return Taken(recording=job, ended=ended, capsule=job.capsules[0])


@pytest.fixture(scope="session")
def nan_with_checkpoints(new_session_folder: Callable[[str], Path], nan_scores: Path) -> Taken:
    with recording(_nan_job(nan_scores, *LONG_STEPS), new_session_folder("nan"), "--checkpoint-every", 5) as job:
        ended = job.end()
        assert len(job.capsules) == 1, ended.output[-3000:]
        return Taken(recording=job, ended=ended, capsule=job.capsules[0])


@pytest.fixture(scope="session")
def nan_from_start(new_session_folder: Callable[[str], Path]) -> Taken:
    home = new_session_folder("nan-start")
    with recording(_nan_job(_scores(home, *LATE)), home, "--window", "all") as job:
        ended = job.end()
        assert len(job.capsules) == 1, ended.output[-3000:]
        return Taken(recording=job, ended=ended, capsule=job.capsules[0])


@pytest.fixture(scope="session")
def exception_with_checkpoints(new_session_folder: Callable[[str], Path]) -> Taken:
    # Of the example's size, steps are so short that on a busy machine none of rank 1's checkpoints is done in time.
    job_line = forked(INCIDENTS / "exception" / "train.py", "--batch", "3", "--size", "1m", ranks=4)
    with recording(job_line, new_session_folder("exception"), "--checkpoint-every", 5) as job:
        ended = job.end()
        assert len(job.capsules) == 1, ended.output[-3000:]
        return Taken(recording=job, ended=ended, capsule=job.capsules[0])
