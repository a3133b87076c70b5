"""`irecv().wait(timeout)` of any source ends when the program asked for it, through the Python kernels, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import forked, record, replay

from prismdbg.model.collective import State

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "any_source_timeout.py"
SAID = ["result raised, within its bound"]


@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
def test_its_own_timeout_holds_in_the_job_and_in_the_replay(native: bool, tmp_path: Path) -> None:
    recorded = record(forked(PROGRAM, ranks=2), tmp_path / "run", native=native)
    assert recorded.ended.lines("result") == SAID, recorded.ended.output
    (received,) = recorded.log(0).collectives
    assert (received.op, received.state) == ("recv_any_source_", State.FAILED)
    again = replay(recorded.folder(0))
    assert again.divergence is None and again.past_the_end is None, again
    assert [line for line in again.output.splitlines() if line.startswith("result")] == SAID
