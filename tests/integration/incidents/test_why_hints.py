"""What `prismdbg why` hints at after a real job that ended well: zero gradients, a rank that is always last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chain import prismdbg
from jobs import forked, recorded_by_command_line

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "zeros_and_late.py"
STEPS = 12


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    run = tmp_path_factory.mktemp("hints") / "run"
    recorded = recorded_by_command_line(forked(PROGRAM, ranks=3), run, "--trigger", "none")
    assert recorded.ended.code == 0, recorded.ended.output
    said = prismdbg("why", run, "--json")
    assert said.code == 0, said.err
    return {verdict["kind"]: verdict for verdict in said.json["verdicts"]}


def test_gradients_that_are_zero_for_many_steps(verdicts: dict[str, dict[str, Any]]) -> None:
    zeros = verdicts["payload"]
    assert (zeros["certainty"], zeros["ranks"], zeros["steps"]) == ("hint", [0, 1, 2], STEPS)
    assert zeros["what"] == "send only zeros"
    assert zeros["call"]["filename"].endswith(PROGRAM.name)


def test_a_rank_that_is_always_last(verdicts: dict[str, dict[str, Any]]) -> None:
    late = verdicts["straggler"]
    assert (late["certainty"], late["ranks"]) == ("hint", [1])
    assert late["times"] >= 0.75 * late["of"] and late["of"] >= STEPS
    assert late["lateness_ns"] > 10e6
