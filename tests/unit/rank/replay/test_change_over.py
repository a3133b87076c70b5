"""A restored rank goes on among virtual peers with its recorder's numbers, whatever the log of its capsule keeps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_log import TinyLog

from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS
from prismdbg.rank.c10d.counters import Counters
from prismdbg.rank.replay import restored
from prismdbg.rank.replay.replayer import Replayer


class Recorder:
    """Parked, and asked to hand over; `rescuer` is what it is handed over to."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.rescuer: Any = None

    def stats(self) -> dict[str, Any]:
        at = self._counters.moment
        return {"events": self._counters.record_id, "step": at.step, "collective": at.collective}

    def sequences(self) -> list[tuple[str, str, int, int, int]]:
        return self._counters.sequences()

    def handover(self, rescuer: Any) -> None:
        self.rescuer = rescuer


@pytest.fixture(autouse=True)
def _process_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (restored.fake_world, "install"),
        (restored.disk_limit, "end_there"),
        (restored.exception_hooks, "install"),
        (restored.COUNTER, "listen"),
        (restored.Replaying, "install"),
        (restored, "_give_recorded_times"),
    ):
        monkeypatch.setattr(module, name, lambda *_: None)


def call(group: str, op: str = "allreduce_", peer: int = -1, tag: int = 0) -> Any:
    return SimpleNamespace(spec=OPS[op], group_name=group, root=peer, tag=tag)


def changed_over(recorded: Counters, log: Path) -> tuple[dict[str, Any], Replayer, Counters]:
    """What the client is told, and the replay's replayer and counters."""
    recorder: Any = Recorder(recorded)
    agent: Any = SimpleNamespace(publish=None, verbs={"resume": 0, "progress": 0}, path=log.parent / "0.sock")
    recording: Any = SimpleNamespace(recorder=recorder)
    told = restored.change_over(recording, agent, {"log": str(log)})
    replayer = recorder.rescuer.__self__
    return told, replayer, replayer._counters


def test_what_was_used_long_before_counts_on_although_the_log_lacks_it(tmp_path: Path) -> None:
    recorded = Counters()
    recorded.begin_step(4)
    for early in (call("7"), call("0", "send", 1, 5), call("0"), call("0")):
        recorded.issue(early)
    log = TinyLog(tmp_path / "log")
    log.records = 2  # the log begins here
    for number, seq in enumerate((0, 1, 2), start=3):
        log.complete(log.issue(4, number, seq=seq))

    told, replayer, counters = changed_over(recorded, log.folder)

    assert (told["moment"], told["record_id"], replayer.first) == ("4.4", 4, 4)
    issued = [counters.issue(again) for again in (call("7"), call("0", "send", 1, 5), call("0"))]
    assert [identity.seq for _, _, identity in issued] == [1, 1, 2]
    assert issued[0][:2] == (4, Moment(4, 5))


def test_a_log_that_begins_with_the_start_moment_is_of_a_rank_that_issued_more(tmp_path: Path) -> None:
    recorded = Counters()
    for _ in range(3):
        recorded.issue(call("0"))
    log = TinyLog(tmp_path / "log")
    log.records = 3
    log.issue(0, 4, seq=3)
    told, replayer, _ = changed_over(recorded, log.folder)
    assert (told["record_id"], replayer.first) == (3, 3)
