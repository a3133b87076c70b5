"""Ranks of an emulation that have ended before anybody listens: each end is an event of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_for

from prismdbg.emulate.emulated_rank import EmulatedRank, Program, first_event
from prismdbg.emulate.rank_output import KeptOutput
from prismdbg.errors import RankLost
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.settings.rank_config import Mode, RankConfig


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[list[EmulatedRank]]:
    """Two whose program does nothing; their parent knows of both ends."""
    run = RunFolder(tmp_path)
    run.ranks.mkdir()
    program = Program(
        run=run,
        command=("false",),
        world=2,
        per_node=2,
        steps=0,
        bound_s=10,
        output=lambda rank: KeptOutput(run.output / f"{rank}.txt", lambda _: None),
        say=lambda _: None,
    )
    config = RankConfig(mode=Mode.EMULATE, socket_dir=str(tmp_path), extra={"emulation": {}})
    ranks = [EmulatedRank(program, number) for number in range(2)]
    for rank in ranks:
        rank.give_turn(config, "")
    wait_for(lambda: sum(rank.has_ended for rank in ranks) == 2, 30, "both programs to end")
    yield ranks
    for rank in ranks:
        rank.close()


def test_each_end_is_heard(ended: list[EmulatedRank]) -> None:
    told: list[str] = []
    for left in (ended, ended[1:]):
        with pytest.raises(RankLost, match=f"rank {left[0].rank}'s program failed with code 1 before it issued"):
            first_event(left, 0, told.append)
    assert told == ["running ranks 0 and 1", "running rank 1"]
