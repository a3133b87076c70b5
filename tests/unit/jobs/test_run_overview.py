"""A recorded job for one look: who waited, for whom, and how much of the time each rank was inside collectives."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.diagnosis import why
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness import stragglers
from prismdbg.diagnosis.lateness.rank_times import NO_TIME
from prismdbg.diagnosis.lateness.time_parts import PARTS
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs.run_overview import (
    SHOWN_RANKS,
    RunOverview,
    is_recorded_job,
    overview_of,
    read_overview,
    read_rows,
)
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.jobs.storage.run_report import RankState, rank_states
from prismdbg.log.log_parts import LogPart, Words
from prismdbg.telemetry.sensor import Kind, Sensor
from prismdbg.telemetry.series import Series, Telemetry
from tests.unit.logs import MILLISECOND_NS, Job, put_on_device

LATE_NS = 200 * MILLISECOND_NS


def state(rank: int) -> RankState:
    return RankState(
        name=str(rank), state="ended", moment="3.1", collectives=3, in_flight=0, steps=3, window="-", log_bytes=1,
        payload_bytes=0, lost="",
    )  # fmt: skip


NOTHING = np.zeros(0)


def overview(job: Job, **facts: Any) -> RunOverview:
    evidence = Evidence(logs=job.logs, world_size=len(job.ranks), **facts)
    return overview_of(Path("run"), evidence, {rank: state(rank) for rank in job.ranks}, {0: 5})


def test_who_waited_and_for_whom() -> None:
    job = Job(3)
    for _ in range(4):
        job.call(late_ns={2: LATE_NS})
    rows = overview(job).ranks
    assert [row.awaited_ns for row in rows] == [0, 0, 4 * LATE_NS]
    assert [row.waited_ns for row in rows] == [4 * LATE_NS, 4 * LATE_NS, 0]
    assert [row.peak_bytes for row in rows] == [5, 0, 0]
    assert {(row.last, row.at) for row in rows} == {("all_reduce", "train.py:42")}
    assert [(row.known_waits, row.unknown_waits) for row in rows] == [(4, 0)] * 3
    put_on_device(job)
    assert [(row.known_waits, row.unknown_waits) for row in overview(job).ranks] == [(0, 4)] * 3
    assert [(row.waited_ns, row.awaited_ns) for row in overview(job).ranks] == [(0, 0)] * 3, (
        "nobody waits when it issues"
    )


def test_when_a_rank_waited_for_which_other() -> None:
    job = Job(3)
    job.call(late_ns={2: LATE_NS})
    job.call(late_ns={1: 3 * LATE_NS})
    job.group("1", (0, 2))
    job.call(group="1", late_ns={2: LATE_NS})
    shown = overview(job)
    by_rank = {row.rank: row.waited_for for row in shown.ranks}
    assert [(wait.rank, wait.waited_ns, str(wait.longest)) for wait in by_rank[0]] == [
        (1, 3 * LATE_NS, "0.2"), (2, 2 * LATE_NS, "0.1"),
    ]  # fmt: skip
    assert [wait.rank for wait in by_rank[1]] == [2] and [wait.rank for wait in by_rank[2]] == [1]
    parts = [np.flatnonzero(wait.when > 0) for wait in by_rank[0]]
    assert parts[1][0] == 0 and parts[1][-1] == PARTS - 1 and len(parts[1]) < PARTS / 2, "at both ends"
    assert parts[0][0] > PARTS / 8 and parts[0][-1] < PARTS * 7 / 8, "in between"
    assert by_rank[0][0].when.sum() * shown.lasted_ns / PARTS == pytest.approx(3 * LATE_NS)


def test_at_most_the_longest_waits_are_told_apart() -> None:
    job = Job(SHOWN_RANKS + 3)
    for rank in range(1, SHOWN_RANKS + 3):
        job.call(late_ns={rank: rank * LATE_NS})
    assert [wait.rank for wait in overview(job).ranks[0].waited_for] == list(range(SHOWN_RANKS + 2, 2, -1))


def test_the_share_of_the_time_inside_collectives() -> None:
    job = Job(2)
    job.call(late_ns={1: LATE_NS})  # rank 0 is inside for all of it
    late = overview(job)
    assert late.lasted_ns == LATE_NS + MILLISECOND_NS // 2
    assert late.ranks[0].inside == pytest.approx(np.ones(PARTS))
    assert late.ranks[1].inside[:-1].max() == 0
    assert late.ranks[1].inside[-1] == pytest.approx(0.5 * MILLISECOND_NS / (late.lasted_ns / PARTS))


def test_a_rank_that_never_came_back_is_inside_until_the_job_ends() -> None:
    job = Job(2)
    job.call()
    job.call(only={0}, done=False)
    began_ns = job.logs[0].collectives[0].time_created_ns
    hung = overview(job, ended_wall_ns=began_ns + 1000 * MILLISECOND_NS)
    assert hung.lasted_ns == 1000 * MILLISECOND_NS
    assert hung.ranks[0].inside[-1] == 1 and hung.ranks[1].inside[-1] == 0
    assert hung.diagnosis.verdicts


def test_a_rank_without_a_call_has_a_row() -> None:
    job = Job(2)
    job.call(only={0})
    row = overview(job).ranks[1]
    assert (row.last, row.at, row.waited_ns, row.inside.max()) == ("", "", 0, 0)
    empty = overview(Job(2))
    assert (empty.lasted_ns, len(empty.ranks)) == (0, 2)


def test_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises((CapsuleError, UsageError)):
        read_overview(tmp_path)
    for rank in range(2):
        log = TinyLog(tmp_path / "ranks" / str(rank), rank)
        log.group("0", (0, 1), "default_pg")
        log.complete(log.issue(0, 1, seq=0))
        (log.folder / "rank.json").write_text(json.dumps({"pid": 2**22 + 1, "world_size": 2}))
        assert not is_recorded_job(tmp_path), "run.json is missing"
    (tmp_path / "run.json").write_text("{}")
    assert is_recorded_job(tmp_path)
    assert [row.rank for row in read_overview(tmp_path).ranks] == [0, 1]


def recorded(path: Path) -> Path:
    """Two ranks, the second of which has ended."""
    for rank in range(2):
        log = TinyLog(path / "ranks" / str(rank), rank)
        log.group("0", (0, 1), "default_pg")
        for seq in range(3):
            log.complete(log.issue(seq, 1, seq=seq))
        if rank:
            log.note("exit", code=0)
        (log.folder / "rank.json").write_text(json.dumps({"pid": 2**22 + 1, "world_size": 2}))
    (path / "run.json").write_text("{}")
    return path


def test_a_log_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, read = recorded(tmp_path), Counter[str]()
    states = {state.name: state for state in rank_states(RunFolder(run))}

    def counted(part: LogPart) -> Words:
        read[part.path.parent.name] += 1
        return read_words(part)

    read_words = LogPart.words
    monkeypatch.setattr(LogPart, "words", counted)
    rows = read_overview(run).ranks
    assert read == {"0": 1, "1": 1}
    assert {row.folder: (row.state, row.moment, row.collectives) for row in rows} == {
        name: (state.state, state.moment, state.collectives) for name, state in states.items()
    }
    assert [row.state for row in rows] == ["died", "ended"]


def test_a_damaged_log_is_refused_as_before(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    path = run / "ranks" / "1" / fmt.event_segment(0)
    data = bytearray(path.read_bytes())
    data[fmt.HEADER.size : fmt.HEADER.size + 4] = (12).to_bytes(4, "little")
    path.write_bytes(data)
    for read in (read_overview, read_rows):
        with pytest.raises(CapsuleError, match="is damaged at offset"):
            read(run)


def test_rows_alone_need_no_diagnosis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(tmp_path)
    whole = read_overview(run).ranks
    monkeypatch.setattr(why, "diagnose", None)
    rows, expected = ([replace(row, inside=NOTHING, time=NO_TIME) for row in each] for each in (read_rows(run), whole))
    assert rows == expected


def test_waits_are_looked_for_once_for_all_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look costs as much as a tenth of the whole table of a long run."""
    looks, look = [], stragglers._waits_by_group

    def noted(evidence: Evidence) -> dict[str, stragglers.Waits]:
        looks.append(evidence)
        return look(evidence)

    monkeypatch.setattr(stragglers, "_waits_by_group", noted)
    read_overview(recorded(tmp_path))
    assert len(looks) == 1


def counter(subject: str, name: str, rate: float, until_ns: int) -> Series:
    times = np.arange(0, until_ns + 1, MILLISECOND_NS, dtype=np.int64)
    sensor = Sensor(subject, name, "ns", Kind.COUNTER)
    return Series(sensor=sensor, times_ns=times, values=(times * rate).astype(np.int64))


def test_what_the_sensors_read_is_a_share_of_the_logs_time() -> None:
    job = Job(2)
    job.steps(20)
    until_ns = job.now_ns + 50 * MILLISECOND_NS
    busy = Sensor("gpu A", "utilization", "%", Kind.GAUGE)
    series = [
        counter("rank 0", "cpu_time", 0.5, until_ns),
        counter("rank 0", "run_queue_wait", 0.25, until_ns),
        Series(
            sensor=busy,
            times_ns=np.array([job.now_ns // 2 + 500 * MILLISECOND_NS], dtype=np.int64),
            values=np.array([70], dtype=np.int64),
        ),
    ]
    read = Telemetry(
        period_ns=MILLISECOND_NS,
        wall_offset_ns=0,
        series={(each.sensor.subject, each.sensor.name): each for each in series},
        texts={("rank 0", "device"): "A"},
    )
    states = {rank: state(rank) for rank in job.ranks}
    first, second = overview_of(Path("run"), Evidence(logs=job.logs, telemetry={"": read}), states, {}).ranks
    assert first.sensors["CPU"] == pytest.approx(0.5, abs=0.01)
    assert first.sensors["queue"] == pytest.approx(0.25, abs=0.01)
    assert first.sensors["GPU"] == pytest.approx(0.7)
    assert second.sensors == {}
