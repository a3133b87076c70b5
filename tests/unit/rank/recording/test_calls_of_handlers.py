"""The handler of a signal issues collectives in the middle of the Python kernels' own work, on the same thread."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from prismdbg.capsule.log.reader import read_log

ROOT = Path(__file__).parents[4]
BOUND_S = 60
PLACES = ("TEXT", "STACK", "ISSUE", "COMPLETE", "lane", "payload")
PROGRAM = """
import itertools, signal, sys
from pathlib import Path
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from prismdbg.capsule.log.format import Kind
from prismdbg.rank.recording import log_writer
from prismdbg.rank.recording.python_recorder import PythonRecorder


def record(place, nth):
    recorder, calls = PythonRecorder(), itertools.count(1)
    folder = Path(place + str(nth))
    folder.mkdir()
    recorder.open(str(folder), 1, 1 << 20, 1 << 20, True, True, True, False, True)
    recorder.window(True, 0, 0)
    owner, name = {
        "lane": (log_writer.PayloadWriter, "_lane_of"), "payload": (log_writer, "_append"),
    }.get(place, (log_writer.LogWriter, "append"))
    original = getattr(owner, name)

    def interrupted(*args):
        is_there = name != "append" or args[1] == Kind[place]
        if is_there and next(calls) == nth:
            signal.raise_signal(signal.SIGUSR1)
        return original(*args)

    setattr(owner, name, interrupted)
    recorder.mode(1)
    for number in range(3):
        dist.broadcast(torch.full((4,), float(number)), 0)
        dist.all_reduce(torch.full((4,), float(number)))
    recorder.mode(0)
    recorder.close_log()
    setattr(owner, name, original)
    assert not recorder.stats()["lost"], recorder.stats()["lost"]


def handler(number, frame):
    dist.all_reduce(torch.full((4,), 7.0))


signal.signal(signal.SIGUSR1, handler)
dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
for place in sys.argv[1:]:
    record(place, 1)
    record(place, 2)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of each place, the logs of a first and of a second time that a signal comes there. Nothing waits for itself."""
    folder = tmp_path_factory.mktemp("logs")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", PROGRAM, *PLACES], timeout=BOUND_S, check=True, env=environment, cwd=folder)
    return folder


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("place", PLACES)
def test_what_they_issue_is_recorded_beside_what_they_interrupt(recorded: Path, place: str, nth: int) -> None:
    calls = read_log(recorded / f"{place}{nth}").collectives
    assert [call.record_id for call in calls] == list(range(7))
    assert len({(call.identity.group, call.identity.op, call.identity.seq) for call in calls}) == 7
    assert len({call.moment for call in calls}) == 7
    assert sorted(call.name for call in calls) == ["all_reduce"] * 4 + ["broadcast"] * 3
    assert len({(call.payload.segment, call.payload.offset) for call in calls if call.payload is not None}) == 7
    stacks = [{frame.name for frame in call.frames} for call in calls]
    assert all({call.name, "record"} <= stack for call, stack in zip(calls, stacks, strict=True))
    assert sum("handler" in stack for stack in stacks) == 1
