"""A hang of a real job is one incident, and says what each rank did."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chain import Recording, prismdbg, recording
from jobs import forked

pytestmark = pytest.mark.job

PROGRAMS = Path(__file__).parents[1] / "programs"
HANG_S = 3


@contextmanager
def hung(how: str, folder: Path) -> Iterator[tuple[Recording, dict[str, Any]]]:
    """With the first incident; a second one would have been told meanwhile."""
    job_line = forked(PROGRAMS / "wrong_meeting.py", how, ranks=3)
    with recording(job_line, folder, "--trigger", f"hang={HANG_S}", "--keep", 0) as job:
        job.wait_for(lambda: job.supervisor.get("incidents"), 100, "the hang to be seen")
        time.sleep(2 * HANG_S)
        (incident,) = job.supervisor["incidents"]
        yield job, incident


def test_ranks_that_do_not_agree_are_told_with_what_each_did(tmp_path: Path) -> None:
    with hung("mismatch", tmp_path) as (job, incident):
        assert "in calls that do not match" in incident["text"], incident
        assert "rank 1 in broadcast at " in incident["text"] and "ranks 0 and 2 in all_reduce at " in incident["text"]
        assert incident["text"].endswith(": broadcast instead of all_reduce"), incident
        assert 1 in incident["ranks"] and len(incident["ranks"]) == 2, incident
        job.stop()
        assert "rank 1 issued a different call" in prismdbg("why", job.run.path).out


def test_ranks_that_wait_for_the_same_one_are_one_hang(tmp_path: Path) -> None:
    with hung("sleeps", tmp_path) as (_, incident):
        assert "rank 1 never joined it" in incident["text"] and "rank 1 is at " in incident["text"], incident
        assert "at the same time rank " in incident["text"], incident
        assert len(incident["ranks"]) == 2 and 1 in incident["ranks"], incident


def test_a_message_that_is_left_out_is_told_as_a_wait_for_each_other(tmp_path: Path) -> None:
    with hung("leaves_out", tmp_path) as (job, incident):
        assert incident["text"].startswith("ranks 1 and 2 waited 3 s for each other: "), incident
        assert incident["text"].count(" in recv (group ") == 2, incident
        assert sorted(incident["ranks"]) == [1, 2]
        job.job.kill()
        told = prismdbg("why", job.run.path).out
        assert told.count("wait for each other") == 1 and "never joined" not in told, told
