"""The rank's other threads in an editor, and which refusals are no error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from prismdbg.dap.threads import Threads
from prismdbg.debugger.debugger import Debugger
from prismdbg.errors import PrismError
from prismdbg.protocol.client import AgentError, NotWaitedFor, RankRuns, UnknownRequest
from prismdbg.protocol.wire import InvalidMessage
from tests.unit.simulated_rank import SimulatedRank

LOADER = {"thread": 7, "name": "loader", "frames": [{"filename": "/job/data.py", "line": 3, "name": "read"}]}


@dataclass(slots=True)
class WithThreads(SimulatedRank):
    refusal: PrismError | None = None

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        if verb != "threads":
            return SimulatedRank.ask(self, verb, **arguments)
        if self.refusal is not None:
            raise self.refusal
        return {"threads": [LOADER]}


def threads_of(rank: SimulatedRank) -> Threads:
    debugger = Debugger(rank, lambda _: None, recorded=rank.moments)
    debugger.begin()
    debugger.do("next")
    return Threads(debugger.inspection, "rank 0")


def test_other_threads_have_numbers_and_frames() -> None:
    threads = threads_of(WithThreads())
    assert threads.names(is_stopped=True) == {1: "rank 0", 2: "loader"}
    assert [str(frame) for frame in threads.frames(2)] == ["/job/data.py:3 in read"]
    assert threads.names(is_stopped=False) == {1: "rank 0"}


@pytest.mark.parametrize("refusal", [UnknownRequest("unknown request"), RankRuns("the rank is running")])
def test_an_older_rank_and_one_that_runs_have_one_thread(refusal: PrismError) -> None:
    assert threads_of(WithThreads(refusal=refusal)).names(is_stopped=True) == {1: "rank 0"}


@pytest.mark.parametrize(
    "refusal", [AgentError("refused"), InvalidMessage("threads must be a list"), NotWaitedFor("given up")]
)
def test_other_errors_are_shown(refusal: PrismError) -> None:
    threads = threads_of(WithThreads(refusal=refusal))
    with pytest.raises(type(refusal)):
        threads.names(is_stopped=True)
