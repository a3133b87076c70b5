"""Ranks of an emulation that have ended before anybody listens: each end is an event of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_log import TinyLog
from waiting import wait_for

from prismdbg.emulate.emulated_rank import EmulatedRank, Program, first_event
from prismdbg.emulate.rank_output import KeptOutput
from prismdbg.errors import RankLost
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.settings.rank_config import Mode, RankConfig


def of_program(run: RunFolder, *command: str, steps: int) -> Program:
    return Program(
        run=run,
        command=command,
        world=2,
        per_node=2,
        steps=steps,
        bound_s=10,
        output=lambda rank: KeptOutput(run.output / f"{rank}.txt", lambda _: None),
        say=lambda _: None,
    )


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[list[EmulatedRank]]:
    """Two whose program does nothing; their parent knows of both ends."""
    run = RunFolder(tmp_path)
    run.ranks.mkdir()
    program = of_program(run, "false", steps=0)
    config = RankConfig(mode=Mode.EMULATE, socket_dir=str(tmp_path), extra={"emulation": {}})
    ranks = [EmulatedRank(program, number) for number in range(2)]
    for rank in ranks:
        rank.give_turn(config, "")
    wait_for(lambda: sum(rank.has_ended for rank in ranks) == 2, 30, "both programs to end")
    yield ranks
    for rank in ranks:
        rank.close()


def test_a_program_without_steps_is_told_how_to_count_them(tmp_path: Path) -> None:
    """Leaving out --steps would not help: with --classes a rank takes five of them then, too."""
    run = RunFolder(tmp_path)
    TinyLog(run.ranks / "0").issue(0, 1)
    rank = EmulatedRank(of_program(run, "true", steps=5), 0)
    rank.give_turn(RankConfig(mode=Mode.EMULATE, socket_dir=str(tmp_path), extra={"emulation": {}}), "")
    wait_for(lambda: rank.has_ended, 30, "the program to end")
    with pytest.raises(RankLost, match="ended after 0 of 5 steps") as raised:
        first_event([rank], deadline=0)
    rank.close()
    assert raised.value.hint.startswith("call prismdbg.step(n) at the top of its loop")


def test_each_end_is_heard(ended: list[EmulatedRank]) -> None:
    told: list[str] = []
    for left in (ended, ended[1:]):
        with pytest.raises(RankLost, match=f"rank {left[0].rank}'s program failed with code 1 before it issued"):
            first_event(left, 0, told.append)
    assert told == ["running ranks 0 and 1", "running rank 1"]


def test_a_rank_that_was_killed_while_it_stood_is_named_at_its_next_turn(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    TinyLog(run.ranks / "0").issue(0, 1)
    rank = EmulatedRank(of_program(run, "sh", "-c", "kill -KILL $$", steps=5), 0)
    config = RankConfig(mode=Mode.EMULATE, socket_dir=str(tmp_path), extra={"emulation": {}})
    rank.give_turn(config, "")
    wait_for(lambda: rank.has_ended, 30, "the program to end")
    rank.give_turn(config, "")
    with pytest.raises(RankLost, match="rank 0's program was killed by SIGKILL in step 0"):
        first_event([rank], deadline=0)
    rank.close()
