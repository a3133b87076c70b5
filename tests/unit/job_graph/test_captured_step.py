"""A captured rank's step is replayed up to the first call after it, wherever in the capsule it lies."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from capsules import make_capsule

from prismdbg.job_graph import captured_rank
from prismdbg.job_graph.captured_rank import CapturedRequest, captured_graph
from prismdbg.jobs.replay.verdict import Outcome
from prismdbg.model.moment import Moment
from prismdbg.simulate.graph.mesh import Mesh


@pytest.mark.parametrize(("step", "until"), [(1, Moment(2, 1)), (2, None)])
def test_of_the_last_step_no_moment_is_asked_for_that_the_capsule_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, until: Moment | None
) -> None:
    """It would not be reached, and an inconclusive verdict would stand above a graph that is whole."""
    asked: list[Moment | None] = []

    def replayed(*_: object, until: Moment | None, **__: object) -> SimpleNamespace:
        asked.append(until)
        return SimpleNamespace(trace=None, verdict=SimpleNamespace(outcome=Outcome.IDENTICAL))

    monkeypatch.setattr(captured_rank, "traced_replay", replayed)
    monkeypatch.setattr(captured_rank, "traced_step", lambda *_: None)
    request = CapturedRequest(capsule=make_capsule(tmp_path / "capsule").path, step=step)
    captured_graph(request, Mesh.parse("dp=2"), ["dp"], print)
    assert asked == [until]
