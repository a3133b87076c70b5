"""A real rank of a real torchrun job, dumped while the job goes on or hangs, and restored alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import psutil
import pytest
from counting import ask, short_folder
from jobs import started, torchrun
from waiting import wait_for

from prismdbg.checkpoint import bundle, images
from prismdbg.checkpoint.bundle import Criu
from prismdbg.checkpoint.criu import dump
from prismdbg.checkpoint.criu_engine import CriuEngine
from prismdbg.jobs.replay.replay_plan import starter_engine
from prismdbg.runtime.environment import Environment
from prismdbg.runtime.environment_scan import scan
from prismdbg.runtime.local_runtime import LocalRuntime
from prismdbg.runtime.seccomp_filter import rank_filter
from prismdbg.runtime.spec import CONTROL_FOLDER, RANK, Bind, ImageOrigin, ReplaySpec
from prismdbg.runtime.starter_spec import make_folders

JOB = Path(__file__).parents[2] / "gloo_job.py"
pytestmark = [pytest.mark.job, pytest.mark.criu]


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as one:
        for name in ("0", "1", "session"):
            (one / name).mkdir()
        yield one


@pytest.fixture
def criu() -> Criu:
    return bundle.find()


@contextmanager
def job(folder: Path, *arguments: str) -> Iterator[None]:
    """Runs until the block ends; both ranks answer."""
    with started(torchrun(JOB, folder, *arguments, ranks=2), folder / "printed"):
        for rank in ("0", "1"):
            where(folder, rank)
        yield


def where(folder: Path, rank: str) -> dict[str, Any]:
    return ask(folder / rank / "agent", "where", bound_s=90)


def pid_of(folder: Path, rank: str) -> int:
    """The rank's process is the one that listens."""
    path = str(folder / rank / "agent")
    found = [c.pid for c in psutil.net_connections("unix") if c.laddr == path and c.pid is not None]
    return min(found)


def installed() -> Environment:
    """What the rank stands on: this interpreter and its packages."""
    rank = {"executable": sys.executable, "prefix": sys.prefix, "base_prefix": sys.base_prefix, "sys_path": sys.path}
    return scan(rank, os.getpid())


def restore(criu: Criu, folder: Path, checkpoint: Path) -> dict[str, Any]:
    """Restores rank 1 and waits until it has noticed that it is alone."""
    session = folder / "session"
    image = images.read(criu, checkpoint)
    assert image.leads_session, "a worker of torchrun leads its session"
    make_folders(session)
    agents = session / RANK / "agents"
    agents.mkdir()
    prepared = session / CONTROL_FOLDER / "images"
    seen_as = PurePosixPath(checkpoint)
    names = images.prepare_restore(criu, checkpoint, prepared, seen_as=seen_as, seccomp=rank_filter())
    spec = ReplaySpec(
        name="rank 1",
        origin=ImageOrigin(
            engine=starter_engine(CriuEngine(criu).program),
            images=prepared,
            root_pid=image.root_pid,
            pids=image.pids,
            names=names,
            doing="restore rank 1",
            standards=tuple((standard.number, standard.key) for standard in image.standards),
        ),
        session=session,
        python=sys.executable,
        capsule=checkpoint,
        environment=installed(),
        binds=(Bind(source=agents, target=str(folder / "1"), read_only=False),),
        folders=image.folders,
        addresses=image.addresses,
        uid=image.uid,
        gid=image.gid,
        longest_s=120,
    )
    rank = LocalRuntime().start(spec)
    try:
        agent = agents / "agent"
        wait_for(lambda: ask(agent, "where")["state"].startswith("alone"), 60, "the rank to miss its peers")
        return ask(agent, "where")
    finally:
        rank.kill()


def test_the_job_goes_on_and_its_rank_lives_twice(criu: Criu, folder: Path) -> None:
    with job(folder):
        before = wait_for(lambda: (now := where(folder, "1"))["step"] > 5 and now, 60, "five steps")
        report = dump(criu, pid_of(folder, "1"), folder / "checkpoint", leave_running=True, timeout_s=60)
        assert 0 < report.frozen_ns < 60e9 and report.pages_bytes <= report.images_bytes
        after = where(folder, "1")
        wait_for(lambda: where(folder, "0")["step"] > after["step"] + 20, 60, "the job to go on")
        restored = restore(criu, folder, folder / "checkpoint")
        assert before["step"] <= restored["step"] < where(folder, "1")["step"]
    assert restored["total"] == 1000.0
    assert "Connection closed" in restored["state"]


def test_a_rank_that_hangs_inside_a_collective_can_be_taken_out(criu: Criu, folder: Path) -> None:
    with job(folder, "7"):
        wait_for(lambda: where(folder, "0")["state"] == "stopped", 60, "rank 0 to stop")
        wait_for(lambda: where(folder, "1")["step"] == 7, 60, "rank 1 to hang")
        dump(criu, pid_of(folder, "1"), folder / "checkpoint", leave_running=True, timeout_s=60)
        restored = restore(criu, folder, folder / "checkpoint")
        still = where(folder, "1")
    assert restored["step"] == 7
    assert "Connection closed" in restored["state"], "the hung collective did not end"
    assert (still["state"], still["step"]) == ("running", 7), "the job was disturbed"
