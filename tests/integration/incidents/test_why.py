"""`prismdbg why` after real jobs: the three incidents of `examples/`, recorded and asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from chain import INCIDENTS, Taken, prismdbg
from jobs import forked, recorded_by_command_line

pytestmark = pytest.mark.job


def why(run: Path) -> list[dict[str, Any]]:
    said = prismdbg("why", run, "--json")
    assert said.code == 0, said.err
    verdicts: list[dict[str, Any]] = said.json["verdicts"]
    return verdicts


def test_who_sent_the_first_nan(nan_from_start: Taken) -> None:
    nan = why(nan_from_start.recording.run.path)[0]

    assert (nan["kind"], nan["certainty"], nan["ranks"], nan["moment"]) == ("nonfinite", "certain", [2], "39.1")
    assert nan["call"]["filename"].endswith("incidents/nan/train.py")
    assert [call["rank"] for call in nan["received"]] == [0, 1, 3]


def test_who_never_came(tmp_path: Path) -> None:
    """The others time out; the rank whose data ran out says nothing, for torchrun ends it."""
    script = INCIDENTS / "hang" / "train.py"
    job = forked(script, "--timeout", 5, "--out", tmp_path / "out", ranks=4)
    recorded = recorded_by_command_line(job, tmp_path / "run", "--trigger", "none")
    assert recorded.ended.code == 1
    assert max(int(step) for step in re.findall(r"step (\d+) loss", recorded.ended.output)) == 20
    assert re.search(r"\[rank[013]\].*Timed out waiting 5000ms", recorded.ended.output)
    assert "[rank2]: " not in recorded.ended.output
    assert not (tmp_path / "out" / "model.pt").exists()

    verdicts = why(recorded.run.path)

    stopped = next(verdict for verdict in verdicts if verdict["kind"] == "stopped")
    assert (stopped["certainty"], stopped["moment"]) == ("certain", "20.1")
    assert [absent["rank"] for absent in stopped["never_came"]] == [2]
    assert stopped["never_came"][0]["last"]["moment"].startswith("19.")
    assert {call["rank"] for call in stopped["waiting"]} == {0, 1, 3}


@pytest.mark.criu
def test_who_raised_first(exception_with_checkpoints: Taken) -> None:
    raised = why(exception_with_checkpoints.recording.run.path)[0]

    assert (raised["kind"], raised["certainty"], raised["ranks"]) == ("raised", "certain", [1])
    assert raised["type"] == "UnicodeDecodeError"
