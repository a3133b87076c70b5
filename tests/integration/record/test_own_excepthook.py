"""A program that handles uncaught exceptions itself: what it died of is known all the same, and replays."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import assert_identical, prismdbg, recording, replay
from jobs import torchrun

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "own_excepthook.py"


@pytest.mark.parametrize("hook", ["rich", "exits", "thread"])
def test_what_it_died_of_is_noted(hook: str, tmp_path: Path) -> None:
    with recording(torchrun(PROGRAM, hook, ranks=1), tmp_path, "--window", "all") as job:
        assert job.end().code != 0
        (incident,) = job.supervisor["incidents"]
        assert (incident["kind"], incident["text"]) == ("exception", "ValueError: the loss is lost")
        (capsule,) = job.capsules
    said = prismdbg("why", job.run.path)
    assert "ValueError: the loss is lost" in said.out and PROGRAM.name in said.out, said.out
    if hook == "thread":  # and whether that ended it is not in its log
        verdict = replay(capsule, code=7)
        assert verdict["why"].startswith("the process died there: exit code 7"), verdict
        return
    verdict = replay(capsule)
    assert_identical(verdict, capsule)
    assert verdict["raised"]["text"] == "the loss is lost"
