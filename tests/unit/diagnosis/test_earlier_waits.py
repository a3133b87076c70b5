"""For whom the others waited in steps of which only a summary is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_log import write_training

from prismdbg.capsule.log.events import Note
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness.earlier_waits import EarlierStraggler, find_earlier_waits
from prismdbg.diagnosis.why import diagnose
from prismdbg.log.columns import read_columns
from prismdbg.log.rank_log import rank_log
from prismdbg.log.step_rows import ROW, Rows, of_many

MS = 1_000_000
STEP_NS = 100 * MS
MANY = 18_944, 1_056  # steps that `of_many` keeps in blocks of 64, and one by one


def summary(waited_ms: Sequence[int], first: int = 0) -> Rows:
    rows = np.zeros(len(waited_ms), dtype=ROW)
    rows["first_step"] = rows["last_step"] = first + np.arange(len(rows))
    rows["begun_ns"] = np.arange(len(rows)) * STEP_NS
    rows["ended_ns"] = rows["begun_ns"] + STEP_NS
    rows["collectives"], rows["waited_ns"] = 2, np.array(waited_ms) * MS
    return rows


def evidence(
    folder: Path, rows: Sequence[Rows], device: str = "cpu", pair: Sequence[int] = (), op: str = "allreduce_"
) -> Evidence:
    """Of ranks that have issued nothing else of interest since. pair: some of them are in a group of their own, too."""
    logs = {}
    for rank, of_rank in enumerate(rows):
        log = write_training(folder / str(rank), steps=1, rank=rank)
        log.group("0", range(len(rows)), "default_pg")
        if rank in pair:
            log.group("1", pair)
        log.complete(log.issue(1, 1, device=device, op=op))
        logs[rank] = rank_log(replace(read_columns(folder / str(rank)), summary=of_rank))
    return Evidence(logs=logs, world_size=len(rows))


def test_the_rank_that_waited_least(tmp_path: Path) -> None:
    found = evidence(tmp_path, [summary([40] * 12), summary([41] * 12), summary([2] * 11 + [90])])

    (verdict,) = find_earlier_waits(found)

    assert isinstance(verdict, EarlierStraggler)
    assert verdict.ranks == (2,) and (verdict.times, verdict.of) == (11, 12)
    assert verdict.text == (
        "the others waited for rank 2 in most steps from 0 to 11, by 38.5 ms a step: 35% of the time"
    )
    assert verdict in diagnose(found).verdicts


def test_who_does_not_meet_the_others_is_not_said_to_be_waited_for(tmp_path: Path) -> None:
    rows = [summary([100] * 12), summary([100] * 12), summary([2] * 12)]
    (verdict,) = find_earlier_waits(evidence(tmp_path, rows, pair=(0, 1)))
    assert verdict.text == "rank 2 waited least in most steps from 0 to 11, by 98.0 ms a step: 98% of the time"
    assert any("may have waited for another rank" in line for line in verdict.lines)


def test_on_a_device_a_summary_has_no_waits(tmp_path: Path) -> None:
    rows = [summary([40] * 12), summary([41] * 12), summary([2] * 12)]
    assert find_earlier_waits(evidence(tmp_path / "host", rows)) != []
    assert find_earlier_waits(evidence(tmp_path / "device", rows, "cuda:0")) == []
    barrier = evidence(tmp_path / "barrier", rows, "cuda:0", op="barrier")
    assert find_earlier_waits(barrier) != [], "gloo's holds its host, whatever device the program names"


def test_only_steps_that_all_ranks_have_count(tmp_path: Path) -> None:
    early, late = summary([40] * 12), summary([2] * 12, first=5)
    assert find_earlier_waits(evidence(tmp_path, [early, late])) == []  # 7 steps are too few


def test_steps_in_which_a_rank_was_parked_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = evidence(tmp_path, [summary([40] * 60 + [5] * 12), summary([2] * 60 + [5] * 12)])
    assert len(find_earlier_waits(found)) == 1
    monkeypatch.setattr(Evidence, "parked_steps", lambda _: frozenset(range(60)))
    assert find_earlier_waits(found) == []


def test_turns_little_time_and_missing_ranks_say_nothing(tmp_path: Path) -> None:
    turns = [summary([40, 2] * 6), summary([2, 40] * 6)]
    assert find_earlier_waits(evidence(tmp_path / "turns", turns)) == []
    little = [summary([4] * 12), summary([2] * 12)]
    assert find_earlier_waits(evidence(tmp_path / "little", little)) == []
    missing = evidence(tmp_path / "missing", [summary([40] * 12), summary([2] * 12)])
    assert find_earlier_waits(replace(missing, world_size=3)) == []


def test_several_steps_in_one_row_count_by_the_step(tmp_path: Path) -> None:
    rows = [summary([400] * 12), summary([20] * 12)]
    for each in rows:
        each["last_step"] = each["first_step"] * 10 + 9
        each["first_step"] *= 10
    (verdict,) = find_earlier_waits(evidence(tmp_path, rows))
    assert isinstance(verdict, EarlierStraggler) and verdict.lateness_ns == 38 * MS and verdict.last == 119


def test_of_many_ranks_old_steps_count_as_much_as_those_that_have_rows_of_their_own(tmp_path: Path) -> None:
    old, new = MANY
    waits = ([40] * old + [5] * new, [2] * old + [5] * new, [41] * old + [5] * new)
    rows = [of_many(summary(waited)) for waited in waits]
    assert len(rows[0]) == old // 64 + new
    (verdict,) = find_earlier_waits(evidence(tmp_path, rows))
    assert isinstance(verdict, EarlierStraggler) and verdict.ranks == (1,)
    assert (verdict.times, verdict.of, verdict.lateness_ns) == (old, old + new, round(38.5 * MS))
    assert verdict.lines == ("from the summary: rank 1 waited least in rows that cover 18,944 of its 20,000 steps",)


def test_of_many_ranks_one_that_is_late_in_few_of_the_steps_is_not_late_in_most(tmp_path: Path) -> None:
    old, new = MANY
    waits = ([5] * old + [302] * new, [5] * old + [2] * new, [5] * old + [303] * new)
    assert find_earlier_waits(evidence(tmp_path, [of_many(summary(waited)) for waited in waits])) == []


def with_parks(found: Evidence, rank: int, steps: Sequence[int], park_ns: int) -> Evidence:
    """The rank was held for an image when each of these steps began."""
    log = found.columns[rank]
    notes = []
    for step in steps:
        began_ns = step * STEP_NS
        notes += [Note("parked", began_ns - park_ns, {}), Note("released", began_ns, {})]
    return replace(found, logs={**found.logs, rank: rank_log(replace(log, notes=notes))})


def test_that_the_others_waited_for_an_image_does_not_count(tmp_path: Path) -> None:
    """Not in rows of several steps either, nearly each of which has one."""
    old, new = MANY
    parked = range(25, old, 50)
    waited = np.full(old + new, 5)
    waited[parked] += 600
    others, held = of_many(summary(waited.tolist())), of_many(summary([5] * (old + new)))
    found = evidence(tmp_path, [others, held, others])
    assert [verdict.ranks for verdict in find_earlier_waits(found)] == [(1,)]
    assert find_earlier_waits(with_parks(found, 1, parked, 600 * MS)) == []


def test_a_late_rank_is_found_however_often_another_one_was_held(tmp_path: Path) -> None:
    old, new = MANY
    parked = range(25, old, 50)
    normal, late = np.full(old + new, 40), np.full(old + new, 2)
    held = normal.copy()
    normal[parked] += 5_000
    late[parked] += 5_000
    rows = [of_many(summary(each.tolist())) for each in (normal, held, late)]
    found = evidence(tmp_path, rows)
    assert [verdict.ranks for verdict in find_earlier_waits(found)] == [(1,)]
    (verdict,) = find_earlier_waits(with_parks(found, 1, parked, 5_000 * MS))
    assert verdict.ranks == (2,)
