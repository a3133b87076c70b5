"""A step is one call of the program's optimizer, whatever number of micro-batches it accumulates. One that a gradient
scaler skips is a step, too, and named as skipped; a replay counts as the job did."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import prismdbg, recording
from jobs import forked

from prismdbg.capsule.log.format import StepSource

pytestmark = pytest.mark.job

PROGRAMS = Path(__file__).parents[1] / "programs"
TAKEN, SKIPPED = StepSource.OPTIMIZER, StepSource.SKIPPED_BY_SCALER


@pytest.mark.parametrize("how", ["plain", "fused", "wrapped"])
def test_a_skipped_step_is_a_step_and_named_as_skipped(how: str, tmp_path: Path) -> None:
    with recording(forked(PROGRAMS / "scaled_steps.py", how, ranks=2), tmp_path, "--window", "all") as job:
        ended = job.end()
    assert ended.lines("unchanged") == ["unchanged in [1]"] * 2, ended.output[-3000:]
    for rank in range(2):
        log = job.log(rank)
        assert [(mark.step, mark.source) for mark in log.steps] == [(1, TAKEN), (2, SKIPPED), (3, TAKEN), (4, TAKEN)]
        assert [call.moment.step for call in log.collectives if call.op == "allreduce_"] == [0, 1, 2, 3]
    told = prismdbg("why", job.run.path).out
    assert "rank 1 sent the first NaN or Inf: all_reduce" in told, told
    assert "the gradient scaler of rank 1 skipped the optimizer at the end of step 1" in told
    replayed = prismdbg("replay", job.run.path, "--rank", "0", "--runtime", "local")
    assert replayed.code == 0 and "identical up to 3.1" in replayed.out, replayed.out + replayed.err


def test_an_overflow_of_an_edited_program_is_no_failure(tmp_path: Path) -> None:
    """It leaves the record before the step that its gradient scaler skips."""
    program, edited = tmp_path / "scaled_steps.py", tmp_path / "edited"
    program.write_text(text := (PROGRAMS / "scaled_steps.py").read_text())
    edited.mkdir()
    (edited / program.name).write_text(text.replace("ones(2, 4)", "full((2, 4), 1.5)"))
    with recording(forked(program, "plain", ranks=2), tmp_path, "--window", "all") as job:
        job.end()
    said = prismdbg("replay", job.run.path, "--rank", "1", "--runtime", "local", "--source", edited, "--json")
    fix = said.json["fix"]
    assert (fix["judgement"], fix["left"]) == ("no incident", "0.4"), said.out + said.err
    assert "no NaN or Inf but recorded ones and those of steps that a gradient scaler skipped" in fix["text"]


@pytest.mark.parametrize(("how", "step"), [("together", 3), ("in_turn", 4)])
def test_an_overflow_of_a_second_optimizer_is_no_incident(how: str, step: int, tmp_path: Path) -> None:
    with recording(forked(PROGRAMS / "scaled_pair.py", how, ranks=2), tmp_path, "--trigger", "nan") as job:
        ended = job.end()
        assert ended.lines("scale") == ["scale 2"] * 2, ended.output[-3000:]
        assert job.supervisor["incidents"] == []
    for rank in range(2):
        log = job.log(rank)
        assert {mark.source for mark in log.steps} == {TAKEN}
        assert [note.data["step"] for note in log.notes if note.kind == "skipped"] == [step]
    told = prismdbg("why", job.run.path).out
    assert f"the gradient scaler of rank 1 skipped one of its optimizers at the end of step {step}" in told, told


def test_a_nan_that_lasts_in_a_second_optimizer_that_is_due_in_every_second_step_is_an_incident(tmp_path: Path) -> None:
    with recording(forked(PROGRAMS / "scaled_pair.py", "seldom", ranks=2), tmp_path, "--trigger", "nan") as job:
        ended = job.end()
        assert len(ended.lines("scale")) == 2, ended.output[-3000:]
        (incident,) = job.supervisor["incidents"]
    assert "rank 1 sends the first NaN or Inf" in str(incident) and "4.2" in str(incident), incident
    assert "the gradient scaler skipped 8 steps in a row" in str(incident), incident


def test_an_overflow_whose_gradients_are_sent_again_is_no_incident(tmp_path: Path) -> None:
    with recording(forked(PROGRAMS / "scaled_gan.py", "once", ranks=2), tmp_path, "--trigger", "nan") as job:
        ended = job.end()
        assert ended.lines("scale") == ["scale 1024"] * 2, ended.output[-3000:]
        assert job.supervisor["incidents"] == []
    assert any(call.sent_nonfinite and call.moment.step == 7 for call in job.log(0).collectives)
    told = prismdbg("why", job.run.path).out
    assert "rank 1 sent the first NaN or Inf: all_reduce" in told and ", 6." in told, told
    assert told.count("sent the first NaN or Inf") == 1, told
    assert "the gradient scaler of rank 1 skipped the optimizer at the end of step 6" in told, told


def test_of_nan_that_lasts_after_an_overflow_record_and_why_name_the_same_first_call(tmp_path: Path) -> None:
    with recording(forked(PROGRAMS / "scaled_gan.py", "lasts", ranks=2), tmp_path, "--trigger", "nan") as job:
        ended = job.end()
        assert len(ended.lines("scale")) == 2, ended.output[-3000:]
        (incident,) = job.supervisor["incidents"]
    assert incident["ranks"] == [1] and incident["moment"].startswith("6."), incident
    told = prismdbg("why", job.run.path).out
    assert "rank 1 sent the first NaN or Inf: all_reduce" in told, told
    assert f", {incident['moment']} at " in told and "came again in a step that was not skipped" in told, told
