"""A rank that slept when it was killed: its replay sleeps there, too, and ends with a verdict long before its time."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from chain import prismdbg, recording
from jobs import forked
from waiting import wait_for

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "killed_asleep.py"


def test_its_replay_ends_as_inconclusive_and_says_what_was_identical(tmp_path: Path) -> None:
    asleep = tmp_path / "asleep"
    with recording(forked(PROGRAM, asleep, ranks=2), tmp_path, "--window", "all") as job:
        wait_for(asleep.exists, 60, "rank 1 to sleep")
        job.wait_until_watched(0, 1)
        os.kill(int(asleep.read_text()), signal.SIGKILL)
        wait_for(lambda: any("rank1" in capsule.name for capsule in job.capsules), 60, "its capsule")
    (capsule,) = (capsule for capsule in job.capsules if "rank1" in capsule.name)
    assert capsule.name.startswith("lost-rank1")
    began = time.monotonic()
    replayed = prismdbg("replay", capsule, "--runtime", "local", "--timeout", "110")
    assert replayed.code == 7, replayed.out + replayed.err
    assert "the incident did not happen again: the replay is identical up to the end moment" in replayed.out
    assert "the rank stayed alive and issued no further collective" in replayed.out
    assert "5 collectives compared, 5 with their payload fingerprints" in replayed.out
    assert time.monotonic() - began < 100
