"""The order in which emulated ranks run, with runs that are only played."""

from __future__ import annotations

import pytest

from prismdbg.errors import RankLost
from prismdbg.workflows.turns import Lacking, Turn, Turns

Program = list[tuple[str, str, int]]  # ("send", key, to) or ("recv", key, from)


class Job:
    """Ranks as lists of sends and receives; a receive of what nobody kept yet ends the run."""

    def __init__(self, programs: dict[int, Program]) -> None:
        self._programs = programs
        self._kept: dict[int, dict[str, int]] = {}
        self.runs: list[int] = []
        self.ended: set[int] = set()

    def run(self, turn: Turn) -> Lacking | None:
        self.runs.append(turn.rank)
        kept = self._kept[turn.rank] = {}
        self.ended.discard(turn.rank)
        for kind, key, peer in self._programs[turn.rank]:
            if kind == "send":
                if peer < 0 or peer in turn.wanted:
                    kept[key] = peer
            elif key not in self._kept.get(peer, {}):
                words = {"collective": "recv", "caller": "", "axis": "pp", "identity": key, "where": "train.py:3"}
                return {"rank": turn.rank, "source": peer, "key": key, **words}
        self.ended.add(turn.rank)
        return None


def test_a_rank_that_lacks_nothing_runs_once() -> None:
    job = Job({0: [("send", "a", -1)]})
    Turns((0,), job.run).complete(0)
    assert job.runs == [0]


def test_the_sender_runs_in_between() -> None:
    job = Job({0: [("send", "a", -1)], 5: [("recv", "a", 0)]})
    Turns((5,), job.run).complete(5)
    assert job.runs == [5, 0, 5]
    assert 5 in job.ended


def test_two_that_need_each_other_in_turn_both_come_to_their_end() -> None:
    """As a checkpoint: one says what it has, the other what to do with it, and so on."""
    asker: Program = [("send", "a", -1), ("recv", "b", 0), ("send", "c", -1), ("recv", "d", 0)]
    root: Program = [("recv", "a", 5), ("send", "b", -1), ("recv", "c", 5), ("send", "d", -1)]
    job = Job({0: root, 5: asker})
    Turns((5,), job.run).complete(5)
    assert job.ended == {0, 5}


def test_a_pipeline_of_stages_ends_in_few_runs() -> None:
    stages = 16
    programs: dict[int, Program] = {}
    for stage in range(stages):
        programs[stage] = [("recv", f"m{stage}", stage - 1)] if stage else []
        programs[stage].append(("send", f"m{stage + 1}", -1))
    job = Job(programs)
    Turns((stages - 1,), job.run).complete(stages - 1)
    assert job.ended == set(range(stages))
    assert len(job.runs) <= 2 * stages


def test_what_was_kept_for_others_only_is_made_again() -> None:
    """The root of a scatter keeps the parts of the ranks that are wanted: a rank named later needs another run."""
    job = Job({0: [("send", "s@3", 3), ("send", "s@5", 5)], 3: [("recv", "s@3", 0)], 5: [("recv", "s@5", 0)]})
    turns = Turns((3,), job.run)
    turns.complete(3)
    turns.complete(5)
    assert job.ended >= {3, 5}


def test_a_value_that_its_sender_does_not_send_is_an_error_that_names_all() -> None:
    job = Job({0: [], 5: [("recv", "a", 0)]})
    with pytest.raises(
        RankLost, match=r"rank 5 lacks .* recv on pp \(a\) at train.py:3: it comes from rank 0"
    ) as raised:
        Turns((5,), job.run).complete(5)
    assert "--donor" in raised.value.hint
    assert "pp:recv=zeros" in raised.value.hint


def test_a_value_of_nobody_is_an_error_at_once() -> None:
    job = Job({5: [("recv", "a", -1)]})
    with pytest.raises(RankLost, match="cannot be named"):
        Turns((5,), job.run).complete(5)
    assert job.runs == [5]
