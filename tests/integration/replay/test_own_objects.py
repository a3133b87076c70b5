"""Objects of the replayed rank that have another length than the recorded ones, as a PID or a time may have."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Recorded, forked, record, replay

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "own_objects.py"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    made = record(forked(PROGRAM, ranks=2), tmp_path_factory.mktemp("objects") / "run", native=True)
    assert made.ended.code == 0, made.ended.output
    return made


@pytest.mark.parametrize("own", [2, 40])
def test_pickles_of_another_length_are_counted(recorded: Recorded, own: int) -> None:
    """The root of a broadcast or a scatter keeps what it has itself; what others sent is as recorded."""
    replayed = replay(recorded.folder(0), env={"OWN": str(own)})
    assert replayed.divergence is None, replayed.divergence
    assert (replayed.code, replayed.synthesized) == (0, []), replayed.output
    assert f"result 0 {own} {own} of rank 1" in replayed.output
    tally = replayed.tally
    assert (tally["compared"], tally["missing"]) == (len(recorded.log(0).collectives), 0)
    # two of the broadcast, three of the scatter, two of the message, two of each gather
    assert tally["object_notes"] == 11


def test_strictly_they_are_a_difference(recorded: Recorded) -> None:
    replayed = replay(recorded.folder(0), env={"OWN": "40"}, strict=True)
    assert replayed.divergence is not None and replayed.divergence["moment"] == "0.1"
