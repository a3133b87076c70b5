"""What `verify --state` says of a replay: one that is identical, but not as long as was asked; as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from capsules import STATE

from prismdbg.cli import main
from prismdbg.cli.commands import verify
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.jobs.replay.compare import Verdict
from prismdbg.jobs.replay.state_check import Checked, checked
from prismdbg.jobs.replay.verdict import Outcome
from prismdbg.model.moment import Moment


@pytest.mark.parametrize(
    ("outcome", "wanted", "after"),
    [
        (Outcome.IDENTICAL, 1, Outcome.IDENTICAL),
        (Outcome.IDENTICAL, 2, Outcome.IDENTICAL),
        (Outcome.IDENTICAL, 3, Outcome.INCONCLUSIVE),
        (Outcome.DIVERGED, 3, Outcome.DIVERGED),  # a difference in fewer steps is one
        (Outcome.INCONCLUSIVE, 3, Outcome.INCONCLUSIVE),
    ],
)
def test_fewer_steps_than_were_asked_for_are_no_verdict(outcome: Outcome, wanted: int, after: Outcome) -> None:
    of_two_steps = replace(STATE, moment_a=Moment(8, 1), moment_b=Moment(10, 2))
    found = checked(Verdict(outcome=outcome, moment="10.2"), of_two_steps, wanted)
    assert (found.verdict.outcome, found.start, found.steps) == (after, Moment(8, 1), 2)
    if outcome is not after:
        assert found.verdict.why == "the recording has 2 steps after the newest state snapshot, fewer than 3"


def test_it_is_told_as_json_with_the_exit_code_of_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text("{}")
    verdict = Verdict(outcome=Outcome.INCONCLUSIVE, why="nothing to compare", moment="8.1", notes=["a note"])
    found = Checked(verdict=verdict, start=Moment(8, 1), steps=2)
    monkeypatch.setattr(verify, "check_state", lambda *_, **__: found)

    assert main.run(["verify", str(tmp_path), "--state", "--json"]) == ExitCode.INCONCLUSIVE

    told = json.loads(capsys.readouterr().out)
    assert told.items() >= {
        "outcome": "inconclusive", "why": "nothing to compare", "moment": "8.1", "start": "8.1", "steps": 2,
        "story": None, "notes": ["a note"],
    }.items()  # fmt: skip
