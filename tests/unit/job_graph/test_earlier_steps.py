"""Steps of which a long log has only a summary: no graph is made of them, and they say whether a step is usual."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_log import TinyLog

from prismdbg.capsule.log.events import RankLog
from prismdbg.errors import UsageError
from prismdbg.job_graph import builder
from prismdbg.job_graph.builder import GraphRequest, build_graph
from prismdbg.job_graph.earlier_steps import FEW, check_kept, first_whole_step, unusual
from prismdbg.log.columns import LogColumns, read_near
from prismdbg.log.folding import fold
from prismdbg.log.rank_log import columns_of, rank_log, read_log
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.mesh import Mesh
from tests.bench.large_capsule import PER_STEP
from tests.bench.long_run import STEPS_PER_SEGMENT, LongRun

MESH = Mesh.parse("dp=2")
STEPS = 3 * STEPS_PER_SEGMENT
FIRST_KEPT = 2 * STEPS_PER_SEGMENT


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "run"
    LongRun(path, 2, 4 << 20).write(STEPS)
    return path


def test_a_step_that_was_dropped_is_an_error_that_says_what_is_left(long_run: Path) -> None:
    with pytest.raises(UsageError) as raised:
        build_graph(GraphRequest(run=long_run, mesh=MESH, step=5))
    said = str(raised.value)
    assert (
        f"step 5 is no longer whole in the log of rank 0 (dp=0), which has the calls from step {FIRST_KEPT} on" in said
    )
    assert f"a summary is left: {PER_STEP} collectives in 99" in said  # of 5 ms each, the last shorter
    assert f"--step {FIRST_KEPT} or a later one" in raised.value.hint


def test_the_first_step_that_is_kept_makes_a_graph(long_run: Path) -> None:
    graph = build_graph(GraphRequest(run=long_run, mesh=MESH, step=FIRST_KEPT))
    assert graph.origin is not None and not any("other steps" in doubt for doubt in graph.origin.doubts)
    with pytest.raises(UsageError, match="is no longer whole in the log"):
        build_graph(GraphRequest(run=long_run, mesh=MESH, step=FIRST_KEPT - 1))


def test_an_old_step_needs_no_whole_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all ranks would be gigabytes."""
    LongRun(tmp_path / "run", 2).write(2 * STEPS)
    request = GraphRequest(run=tmp_path / "run", mesh=MESH, step=1)
    read: list[int] = []

    def seen(folder: Path, steps: range) -> LogColumns:
        columns = read_near(folder, steps)
        read.append(len(columns))
        return columns

    monkeypatch.setattr(builder, "read_near", seen)
    graph_file.save(build_graph(request), tmp_path / "near")
    at_the_end = 2 * STEPS_PER_SEGMENT * PER_STEP  # of these two segments all are read
    assert len(read) == 2 and max(read) < at_the_end + 4 * PER_STEP
    monkeypatch.setattr(builder, "LAST_BYTES", 1 << 40)
    graph_file.save(build_graph(request), tmp_path / "whole")
    assert len(read) == 2
    assert (tmp_path / "near").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_step_that_took_unlike_those_of_the_summary_is_doubted(long_run: Path, factor: float) -> None:
    log = _with_summary_times(read_log(long_run / "ranks" / "0"), factor)
    (doubt,) = unusual(MESH, {0: log}, FIRST_KEPT + 1)
    low = "500 ms" if factor < 1 else "2 s"
    assert f"step {FIRST_KEPT + 1} of rank 0 (dp=0) took" in doubt and f"steps before took {low}" in doubt


def test_a_step_that_took_nearly_as_long_is_usual(long_run: Path) -> None:
    log = read_log(long_run / "ranks" / "0")
    assert not unusual(MESH, {0: log}, FIRST_KEPT + 1)
    assert not unusual(MESH, {0: _with_summary_times(log, 1.05)}, FIRST_KEPT + 1)


def test_few_steps_do_not_say_what_is_usual(long_run: Path) -> None:
    log = _with_summary_times(read_log(long_run / "ranks" / "0"), 2.0)
    columns = columns_of(log)
    short = rank_log(replace(columns, summary=columns.summary[:FEW]))  # between so many there is one length less
    assert unusual(MESH, {0: log}, FIRST_KEPT) and not unusual(MESH, {0: short}, FIRST_KEPT)


def _with_summary_times(log: RankLog, factor: float) -> RankLog:
    columns = columns_of(log)
    summary = columns.summary.copy()
    for name in ("begun_ns", "ended_ns"):
        summary[name] = (summary[name] * factor).astype(int)
    return rank_log(replace(columns, summary=summary))


@pytest.mark.parametrize(("calls_of_a_step", "first"), [(4, 3), (3, 4), (2, 6), (12, 1)])
def test_a_step_of_which_a_part_was_dropped_is_not_whole(tmp_path: Path, calls_of_a_step: int, first: int) -> None:
    """Segments have four calls each, and three of them go."""
    log = TinyLog(tmp_path, segment_bytes=1 << 11)
    for number in range(24):
        step, nth = divmod(number, calls_of_a_step)
        log.complete(log.issue(step, nth + 1))
        if number % 4 == 3 and number < 23:
            log.next_segment()
    assert first_whole_step(read_log(tmp_path)) == 0
    fold(tmp_path, 3 << 11)
    whole = read_log(tmp_path)
    assert whole.dropped == 12
    assert first_whole_step(whole) == first


def test_a_log_that_has_no_step_whole_names_none_to_choose(tmp_path: Path) -> None:
    log = TinyLog(tmp_path, segment_bytes=1 << 11)
    for number in range(24):
        log.complete(log.issue(0, number + 1))
        if number % 4 == 3 and number < 23:
            log.next_segment()
    fold(tmp_path, 3 << 11)
    with pytest.raises(
        UsageError, match="has every call of no step; of its begin a summary is left: 12 coll"
    ) as raised:
        check_kept(MESH, {0: read_log(tmp_path)}, 0)
    assert "choose" not in raised.value.hint
