"""A rank that hangs again, as an editor is told of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from prismdbg.dap.motion import Motion
from prismdbg.dap.telling import Telling
from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.model.frame import Frame
from prismdbg.session.recorded_hang import RecordedHang
from tests.unit.simulated_rank import SimulatedRank


def test_it_stops_with_the_verdict_and_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prismdbg.debugger.driver.PROGRESS_S", 0.01)
    rank = SimulatedRank(hangs=True)
    hang = RecordedHang(rank=1, bound_s=0.02, frames=(Frame("/job/data.py", 26, "load"),))
    settings = Settings(bound_s=0.05)
    debugger = Debugger(rank, lambda _: None, recorded=rank.moments, settings=settings, hang=hang)
    debugger.begin()
    told: list[dict[str, Any]] = []
    client: Any = SimpleNamespace(event=lambda name, body: told.append(body), say=lambda *_: None)
    control: Any = SimpleNamespace(stands=lambda: None)
    motion = Motion(client, control, debugger, Telling(client), SimpleNamespace(), lambda: None)  # type: ignore[arg-type]
    motion.run("continue")
    motion.run("reverse-next")
    hangs, back = told
    assert hangs["reason"] == "pause" and hangs["description"].startswith("hangs again, as recorded")
    assert "text" not in hangs and hangs["allThreadsStopped"] is True
    assert "hangs again" not in back["description"]
