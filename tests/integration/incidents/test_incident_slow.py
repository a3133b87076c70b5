"""The example that gets slow, as its walkthrough has it: whose capsule it is, what `why` says, and the line."""

from __future__ import annotations

import pytest
from chain import INCIDENTS, Taken, assert_identical, prismdbg, recording, replay
from jobs import forked

from prismdbg.capsule.manifest import IncidentKind
from prismdbg.model.moment import Moment

pytestmark = pytest.mark.job

TRAIN = INCIDENTS / "slow" / "train.py"
SLOW_STEP = 20  # the 21st
BATCH = 32  # then it is slower by far than a busy machine makes it
SLOW_RANK = 3  # what it reads lies farthest within the archive
FIRST_ARCHIVED = SLOW_RANK * 2215 + SLOW_STEP * BATCH


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    archived = ("--archived", FIRST_ARCHIVED, FIRST_ARCHIVED + 400)
    job_line = forked(TRAIN, "--batch", BATCH, "--steps", SLOW_STEP + 5, *archived, ranks=4)
    options = ("--window", "all", "--trigger", "slow")  # as the walkthrough has it
    with recording(job_line, tmp_path_factory.mktemp("slow"), *options) as job:
        ended = job.end()
        assert len(job.capsules) == 1, ended.output[-3000:]
        return Taken(recording=job, ended=ended, capsule=job.capsules[0])


def test_the_capsule_is_of_the_rank_for_which_the_others_waited(taken: Taken) -> None:
    assert taken.ended.code == 0
    incident = taken.manifest.incident
    assert (taken.manifest.rank, incident.kind, incident.moment) == (SLOW_RANK, IncidentKind.SLOW, Moment(SLOW_STEP))
    assert incident.text.startswith(f"step {SLOW_STEP} took ") and incident.text.endswith(f" s for rank {SLOW_RANK}")


def test_why_names_the_rank_and_the_place(taken: Taken) -> None:
    (delay,) = prismdbg("why", taken.recording.run.path, "--json").json["verdicts"]
    assert (delay["kind"], delay["certainty"], delay["ranks"]) == ("delay", "likely", [SLOW_RANK])
    assert (delay["moment"], delay["before"]["moment"], delay["times"]) == ("20.1", "19.2", 5)
    source = TRAIN.read_text().splitlines()
    lines = [source[call["line"] - 1].strip() for call in (delay["before"], delay["first"])]
    assert lines == ["loss.backward()", "dist.all_reduce(mean)"]


def test_the_first_operator_of_the_step_is_in_the_data_set(taken: Taken) -> None:
    lines = (f"goto {SLOW_STEP}.0.1", "print index", "print index in self.archived", "next", "quit")
    said = prismdbg("debug", taken.capsule, "--runtime", "local", typed="".join(f"{line}\n" for line in lines))
    assert said.code == 0, said.out + said.err
    answers = dict(part.split("\n", 1) for part in said.out.split("(prismdbg) ")[1:] if "\n" in part)
    assert f"stopped at {SLOW_STEP}.0.1 " in answers[lines[0]]
    assert "ArchivedExcerpts.__getitem__" in answers[lines[0]]
    assert answers["print index"].strip() == str(FIRST_ARCHIVED)
    assert answers["print index in self.archived"].strip() == "True"
    assert f"stopped at {SLOW_STEP}.1 " in answers["next"]


def test_it_is_the_run_that_was(taken: Taken) -> None:
    assert_identical(replay(taken.capsule), taken.capsule)
