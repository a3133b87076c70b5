"""Where a replay is past B: what another thread still has to do there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from logs import lone_collective

from prismdbg.capsule.log_reader import RankLog
from prismdbg.model.moment import Moment
from prismdbg.rank.counters import Counters
from prismdbg.rank.gate import Gate
from prismdbg.rank.replayer import OTHER_THREADS_S, Replayer
from prismdbg.rank.stops import CallView


class Waits(threading.Condition):
    """The step is taken while somebody waits for it."""

    def __init__(self, counters: Counters) -> None:
        super().__init__()
        self._counters = counters
        self.bounds: list[float | None] = []

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> bool:
        if not predicate():
            self.bounds.append(timeout)
            self._counters.begin_step(2)
        return bool(predicate())


@pytest.mark.parametrize(("recorded", "waited"), [("2.1", [OTHER_THREADS_S]), ("1.4", [])])
def test_what_the_record_issued_after_a_step_waits_for_it(recorded: str, waited: list[float]) -> None:
    """Else the replay ends before the step at which the parameters are compared."""
    record = replace(lone_collective(), moment=Moment.parse(recorded))
    log = RankLog(rank=0, pid=1, wall_offset_ns=0, collectives=[record])
    counters = Counters()
    counters.begin_step(1)
    replayer = Replayer(log, cast(Any, None), counters, Gate(lambda *_, **__: None), lambda *_, **__: None)
    replayer._served = waits = Waits(counters)

    replayer._await_step(cast(CallView, SimpleNamespace(identity=record.identity)))

    assert waits.bounds == waited
