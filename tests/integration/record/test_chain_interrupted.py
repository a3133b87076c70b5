"""Whoever captures is told to end, or killed, at each point of its way: the job goes on to the same end, nothing half
made is left, and the rank can be captured again."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chain import CLI, PARTS, Recording, assert_identical, prismdbg, recording, replay
from jobs import ROOT, Ended, forked, plain_environment, run
from waiting import wait_for

from prismdbg.capsule.log.reader import read_log
from prismdbg.jobs.capture.capture import LEFTOVER, socket_of
from prismdbg.protocol.client import AgentClient

pytestmark = [pytest.mark.job, pytest.mark.criu]

RANK = 1
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}
ENDLESS = 100_000  # steps of a window: it is interrupted before they are done


class Client:
    """`prismdbg capture`, on its way."""

    def __init__(self, job: Recording, output: Path, window: int) -> None:
        self.job, self.output = job, output
        self._parks = self._parked()
        line = [*CLI, "capture", job.run.path, "--rank", RANK, "--window", window, "-o", output]
        self._said = output.with_suffix(".said")
        with self._said.open("wb") as sink:
            self.process = subprocess.Popen(list(map(str, line)), cwd=ROOT, env=plain_environment(), stderr=sink)

    def comes_to(self, point: str) -> None:
        reached: Callable[[], bool] = {
            "asked": lambda: self._has_said("the checkpoint will take"),
            "dumping": lambda: self._parked() > self._parks,
            "imaged": lambda: self._has_said(": checkpoint of"),
            "waiting": lambda: self._has_said("waiting for step"),
            "writing": lambda: any(self.output.parent.glob(f".{self.output.name}.partial-*")),
        }[point]
        wait_for(lambda: reached() or self.process.poll() is not None, 60, f"the capture to come to {point!r}")

    def _has_said(self, words: str) -> bool:
        return words in self._said.read_text(errors="replace")

    def _parked(self) -> int:
        log = read_log(self.job.run.latest(RANK))
        return sum(note.kind == "parked" for note in log.notes)


@contextmanager
def capturing(job: Recording, output: Path, window: int) -> Iterator[Client]:
    client = Client(job, output, window)
    try:
        yield client
    finally:
        client.process.kill()
        client.process.wait(30)


SOME = [
    (signal.SIGTERM, "asked"),
    (signal.SIGKILL, "dumping"),
    (signal.SIGTERM, "imaged"),
    (signal.SIGINT, "waiting"),
    (signal.SIGKILL, "writing"),
]
OTHERS = [
    (signal.SIGKILL, "asked"),
    (signal.SIGTERM, "dumping"),
    (signal.SIGINT, "dumping"),
    (signal.SIGKILL, "imaged"),
    (signal.SIGTERM, "waiting"),
    (signal.SIGKILL, "waiting"),
    (signal.SIGTERM, "writing"),
]


@pytest.mark.parametrize("sweep", [SOME, OTHERS], ids=["some", "others"])
def test_an_interrupted_capture_harms_nobody(sweep: list[tuple[signal.Signals, str]], tmp_path: Path) -> None:
    (tmp_path / "told").mkdir()
    capsules = tmp_path / "capsules"
    capsules.mkdir()
    slowly = forked(PARTS / "until_told.py", tmp_path / "told", 0.02, ranks=2)  # the bare job takes as many steps
    with recording(slowly, tmp_path) as job:
        job.wait_for_step(RANK, 3)
        for number, (with_signal, point) in enumerate(sweep):
            interrupt(job, capsules / f"{number}", with_signal, point)
        last = tmp_path / "last-of-all"
        said = prismdbg("capture", job.run.path, "--rank", RANK, "--window", 2, "-o", last)
        assert said.code == 0, said.err
        assert not list(job.run.path.glob(f"{LEFTOVER}*")), "images of killed clients go with the next capture"
        assert not list(tmp_path.glob(".*.partial-*"))
        steps = job.step(0) + 20
        (tmp_path / "told" / "last").write_text(str(steps))
        ended = job.end()
        assert job.supervisor["incidents"] == job.supervisor["problems"] == []
    assert ended.code == 0, ended.output[-3000:]
    assert results(ended) == results(bare(tmp_path, results(ended)[0][2]))
    assert_identical(replay(last), last)


def interrupt(job: Recording, output: Path, with_signal: signal.Signals, point: str) -> None:
    title = f"{with_signal.name} at {point!r}"
    with capturing(job, output, 1 if point == "writing" else ENDLESS) as client:
        client.comes_to(point)
        client.process.send_signal(with_signal)
        code = client.process.wait(100)
    if point == "writing" and code == 0:  # it was quicker
        assert prismdbg("verify", output).code == 0
    else:
        assert code == CODES[with_signal], title
        assert not output.exists(), f"{title}: half a capsule has the name of a whole one"
    if with_signal is not signal.SIGKILL:
        left = [*job.run.path.glob(f"{LEFTOVER}*"), *output.parent.glob(".*.partial-*")]
        assert not [path for path in left if f".{output.name}." in path.name or LEFTOVER in path.name], title
    job.wait_for_step(RANK, job.step(RANK) + 3, bound_s=60)
    with AgentClient(socket_of(job.run.latest(RANK))) as agent:
        assert not agent.ask("status")["parked"], title
    job.wait_for(lambda: payloads_are_off(job), 30, f"the payload window to be closed after {title}")


def payloads_are_off(job: Recording) -> bool:
    """The job was recorded without a window: what a client switched on ends with it."""
    now_ns = time.monotonic_ns()
    job.wait_for_step(RANK, job.step(RANK) + 1, bound_s=60)
    fresh = [r for r in job.log(RANK).collectives if r.time_created_ns > now_ns and r.time_completed_ns]
    return bool(fresh) and all(record.payload is None for record in fresh)


def results(ended: Ended) -> list[tuple[str, str, int]]:
    """Of each rank: its parameters, and after how many steps. The lines of two ranks may run into each other."""
    found = re.findall(r"rank (\d+) parameters ([0-9a-f]{16}) after (\d+)", ended.output)
    assert len(found) == 2, ended.output[-3000:]
    return sorted((rank, parameters, int(steps)) for rank, parameters, steps in found)


def bare(tmp_path: Path, steps: int) -> Ended:
    """The same training without prismdbg, told beforehand."""
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "last").write_text(str(steps))
    return run(forked(PARTS / "until_told.py", folder, 0, ranks=2), folder / "output.txt")
