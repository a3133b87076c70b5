"""A recorded job on GPUs: its iterations are measured, and its logs do not show what was computed in them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from prismdbg.model.moment import Moment
from prismdbg.render import sweep_text
from prismdbg.render.sweep_page import page
from prismdbg.sweep.folder import SweepFolder
from prismdbg.sweep.request import How, SweepRequest, Trial
from prismdbg.sweep.result import Result, State
from prismdbg.sweep.space import Space
from prismdbg.sweep.sweep import sweep
from tests.tiny_log import TinyLog
from tests.traces import TraceBuilder

GPU = 1  # the first device


class Recorded:
    """In place of workers: four iterations of two ranks on GPUs, of 100 to 400 ns."""

    ranks = (0, 1)

    def __init__(self, folder: SweepFolder, _say: object) -> None:
        self.folder = folder

    def run(self, trials: Sequence[Trial]) -> dict[str, str]:
        for trial in trials:
            self.folder.begin(trial)
            for rank in self.ranks:
                self._write(trial.run, rank)
            (trial.run / "run.json").write_text(json.dumps({"command": ["python"], "started_wall_ns": 10**18}))
            self.folder.ran(trial)
        return {}

    def _write(self, run: Path, rank: int) -> None:
        log = TinyLog(run / "ranks" / str(rank), rank)
        log.group("0", (0, 1), "default_pg")
        for step, time_ns in enumerate((1000, 1100, 1300, 1600, 2000)):
            log.complete(log.issue(step, 1, device="cuda:0"))
            log.step(step + 1, time_ns=time_ns)
        trace = TraceBuilder(log.folder / "memory", now=Moment(0))
        kept = trace.allocate(50, device=GPU)
        for step in (1, 2):
            trace.now = Moment(step)
            trace.free(trace.allocate(100 * step + rank, device=GPU))
        trace.now = Moment(3)
        trace.free(kept)
        trace.write()


def swept(folder: Path, ran: list[str]) -> list[Result]:
    command = (sys.executable, "-c", "pass", "{dp}")
    asked = SweepRequest(output=folder / "s", space=Space.parse(2, "dp", ["dp=2"]), command=command, how=How.RECORD)
    return sweep(asked, ran.append)


def test_iterations_on_devices_are_measured_and_what_they_spend_is_doubted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prismdbg.sweep.sweep.workers", Recorded)
    (result,) = results = swept(tmp_path, [])
    assert (result.state, result.middle_ns, result.iteration_ns) == (State.DONE, 250, (100, 200, 300, 400)), result.why
    assert result.mesh == "dp=2" and (result.idle_share, result.exposed, result.message_bytes) == (None, {}, {})
    assert result.peak_bytes == 251, "what rank 1 held of its GPU in the typical step"
    row = dict(zip(sweep_text.HEADER, sweep_text.rows(results, 0)[0], strict=True))
    assert [row[name] for name in ("idle", "exposed", "messages")] == ["-"] * 3
    assert sweep_text.worth(results, 0) == []
    why = "rank 0 ran step 2 on cuda:0: the log does not show how long it computed"
    assert sweep_text.doubts(results, 0) == [f"not reliable: idle, exposed and messages: {why}"]
    assert "Computing, by rank" not in page(results, 0)
    said: list[str] = []
    assert swept(tmp_path, said) == results and said == ["1 configuration ran before; 0 to go"]


def test_a_run_on_devices_without_one_of_its_ranks_has_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prismdbg.sweep.sweep.workers", Recorded)
    monkeypatch.setattr(Recorded, "ranks", (0,))
    (result,) = swept(tmp_path, [])
    assert result.state is State.FAILED
