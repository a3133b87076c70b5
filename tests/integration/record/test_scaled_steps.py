"""A step is one call of the program's optimizer, whatever number of micro-batches it accumulates. One that a gradient
scaler skips is a step, too, and named as skipped; a replay counts as the job did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


PLAIN = (PROGRAMS / "scaled_steps.py").read_text()
OTHER_DATA = ("ones(2, 4)", "full((2, 4), 1.5)")
IN_A_STEP = "        for micro_batch in range(MICRO_BATCHES):\n"


def fix_of(program: str, edited: str, folder: Path, *words: str, run_to: str = "") -> dict[str, Any]:
    """What the replay of rank 1 says of the edited program."""
    path, source = folder / "program.py", folder / "edited"
    path.write_text(program)
    source.mkdir()
    (source / path.name).write_text(edited)
    with recording(forked(path, *words, ranks=2), folder, "--window", "all") as job:
        job.end()
    (folder / "run.yaml").write_text(f"run_to: {run_to}\nforbid: [{{on: exception}}]\n")
    options = ["--runtime", "local", "--source", source, *(["--script", folder / "run.yaml"] if run_to else [])]
    said = prismdbg("replay", job.run.path, "--rank", "1", *options, "--json")
    assert said.json is not None and said.json["fix"], said.out + said.err
    return dict(said.json["fix"])


def test_an_overflow_of_an_edited_program_is_no_failure(tmp_path: Path) -> None:
    """It leaves the record before the step that its gradient scaler skips."""
    fix = fix_of(PLAIN, PLAIN.replace(*OTHER_DATA), tmp_path, "plain")
    assert (fix["judgement"], fix["left"]) == ("no incident", "0.4"), fix
    assert "no NaN or Inf but recorded ones and those of steps that a gradient scaler skipped" in fix["text"]


@pytest.mark.parametrize("how", ["together", "in_turn"])
def test_an_overflow_of_another_optimizer_of_an_edited_program_is_no_failure(how: str, tmp_path: Path) -> None:
    pair = (PROGRAMS / "scaled_pair.py").read_text().replace("STEP_TAKES_S = 0.3", "STEP_TAKES_S = 0.0")
    edited = pair.replace(*OTHER_DATA).replace("OVERFLOWS = 12, 3", "OVERFLOWS = 12, 5")
    fix = fix_of(pair, edited, tmp_path, how)
    assert (fix["judgement"], fix["left"][:2]) == ("no incident", "0."), fix
    assert "those of steps that a gradient scaler skipped" in fix["text"]


def test_an_overflow_behind_the_recorded_exception_is_no_failure(tmp_path: Path) -> None:
    """The edited program never leaves the record."""
    raises = PLAIN.replace(
        IN_A_STEP, f"        if (step, dist.get_rank()) == (1, 1):\n            raise ValueError\n{IN_A_STEP}"
    )
    fix = fix_of(raises, PLAIN, tmp_path, "plain", run_to="3.1")
    assert (fix["judgement"], fix["left"]) == ("gone", None), fix


def test_steps_that_are_skipped_in_a_row_are_the_incident_again(tmp_path: Path) -> None:
    lasts = PLAIN.replace("step == 1 and", "step >= 1 and").replace(
        "STEPS, MICRO_BATCHES = 4", "STEPS, MICRO_BATCHES = 12"
    )
    fix = fix_of(lasts, lasts.replace(*OTHER_DATA), tmp_path, "plain")
    assert (fix["judgement"], fix["left"]) == ("recurs", "0.4"), fix


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
    assert f", {incident['moment']}) at " in told and "came again in a step that was not skipped" in told, told
