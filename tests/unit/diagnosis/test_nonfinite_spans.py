"""NaN and Inf that came and went lead over nothing, whether the logs are whole or their beginnings only summarized."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.failures import Raised
from prismdbg.diagnosis.nonfinite import FirstNonfinite
from prismdbg.diagnosis.nonfinite_spans import steps_between
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.diagnosis.why import diagnose
from prismdbg.log import nonfinite_runs, summary
from prismdbg.log.columns import read_columns
from prismdbg.log.folding import fold
from prismdbg.log.rank_log import rank_log
from prismdbg.log.summary import summarize
from tests.unit.logs import Job

CLEAN = 9
FINE, NAN, SKIPPED = "fine", "NaN", "skipped"
Parts = Sequence[tuple[str, int, int]]  # what, of which rank, for how many steps


def nonfinite(evidence: Evidence) -> list[tuple[str, int, Certainty]]:
    found = [verdict for verdict in diagnose(evidence).verdicts if isinstance(verdict, FirstNonfinite)]
    return [(str(one.moment), one.call.rank, one.certainty) for one in found]


def trained(job: Job, parts: Parts) -> Job:
    for what, rank, count in parts:
        for _ in range(count):
            some = what != FINE
            job.call(sends_nan={rank} if some else (), receives_nan=job.ranks if some else ())
            for each in job.ranks:
                job.next_step(each)
                if what == SKIPPED:
                    marks = job.logs[each].steps
                    marks[-1] = replace(marks[-1], source=fmt.StepSource.SKIPPED_BY_SCALER)
    return job


def evidence(job: Job) -> Evidence:
    return Evidence(logs=job.logs, world_size=len(job.ranks), ended_wall_ns=job.now_ns + 10**9)


class TestWhatIsOver:
    def test_an_overflow_that_a_scaler_got_over_is_told_after_the_crash(self) -> None:
        job = trained(Job(3), [(SKIPPED, 0, 1), (FINE, 0, 40)])
        job.raises(2)
        first, second = diagnose(evidence(job)).verdicts
        assert isinstance(first, Raised) and first.certainty is Certainty.CERTAIN
        assert isinstance(second, FirstNonfinite) and second.certainty is Certainty.HINT

    def test_what_comes_after_steps_without_any_is_another_one(self) -> None:
        job = trained(Job(3), [(NAN, 0, 1), (FINE, 0, CLEAN), (NAN, 2, 3)])
        assert nonfinite(evidence(job)) == [("10.1", 2, Certainty.CERTAIN), ("0.1", 0, Certainty.HINT)]

    def test_and_soon_after_it_is_not(self) -> None:
        job = trained(Job(3), [(NAN, 0, 1), (FINE, 0, CLEAN - 1), (NAN, 2, 3)])
        assert nonfinite(evidence(job)) == [("0.1", 0, Certainty.CERTAIN)]

    @pytest.mark.parametrize(("steps", "certainty"), [(CLEAN - 1, Certainty.CERTAIN), (CLEAN, Certainty.HINT)])
    def test_a_job_that_goes_on_without_any_got_over_it(self, steps: int, certainty: Certainty) -> None:
        job = trained(Job(3), [(NAN, 0, 2), (FINE, 0, steps)])
        assert nonfinite(evidence(job)) == [("0.1", 0, certainty)]

    def test_steps_that_a_scaler_skips_are_not_without_any(self) -> None:
        job = trained(Job(2), [(NAN, 0, 1), (FINE, 0, 1)])
        for _ in range(CLEAN):
            trained(job, [(SKIPPED, 1, 1)])
        assert ("0.1", 0, Certainty.CERTAIN) in nonfinite(evidence(job))

    def test_a_loss_that_begins_as_infinite_in_each_epoch_is_told_a_few_times(self) -> None:
        job = trained(Job(2), [(NAN, 0, 1), (FINE, 0, CLEAN)] * 20)
        found = nonfinite(evidence(job))
        assert found == [(f"{10 * epoch}.1", 0, Certainty.HINT) for epoch in range(3)]

    def test_where_nobody_marks_steps_nothing_is_over(self) -> None:
        job = Job(2)
        job.call(sends_nan={0})
        for _ in range(50):
            job.call()
        job.call(sends_nan={1})
        assert nonfinite(evidence(job)) == [("0.1", 0, Certainty.LIKELY)]


def written(folder: Path, parts: Parts, each_segment: int, after: Callable[[Path], None], world: int = 2) -> None:
    """Ranks that meet once a step, in which one sends NaN, or none does."""
    for rank in range(world):
        log = TinyLog(folder / str(rank), rank, segment_bytes=1 << 13)
        log.group("0", range(world), "default_pg")
        log.note("scaler")
        step = 0
        for what, sender, count in parts:
            for _ in range(count):
                begun_ns, some = 10_000 + 100 * step, what != FINE
                sends = fmt.IssueFlag.SENT_NONFINITE if some and sender == rank else 0
                record = log.issue(step, 1, flags=fmt.IssueFlag.HAS_FINGERPRINT | sends, time_ns=begun_ns + rank)
                received = fmt.CompleteFlag.RECEIVED_NONFINITE if some else 0
                log.complete(record, flags=received, ended_ns=begun_ns + 50)
                step += 1
                source = fmt.StepSource.SKIPPED_BY_SCALER if what == SKIPPED else fmt.StepSource.OPTIMIZER
                log.step(step, source, time_ns=begun_ns + 60)
                if step % each_segment == 0:
                    log.next_segment()
                    after(log.folder)
        log.issue(step, 1, time_ns=10_000 + 100 * step)


def read(folder: Path, newest_bytes: int | None = None, newest_rows: int | None = None) -> Evidence:
    logs = {int(one.name): rank_log(read_columns(one, newest_bytes, newest_rows)) for one in folder.iterdir()}
    return Evidence(logs=logs, world_size=len(logs))


def folded(folder: Path) -> None:
    summarize(folder)
    fold(folder, 2 << 13)


OVERFLOWS: Parts = [(SKIPPED, 0, 1), (FINE, 0, 4), (NAN, 1, 30)]


class TestSummaries:
    @pytest.mark.parametrize("after", [summarize, folded])
    @pytest.mark.parametrize("newest", [{"newest_bytes": 0}, {"newest_rows": 3}])
    def test_what_a_scaler_got_over_is_known(
        self, after: Callable[[Path], None], newest: dict[str, int], tmp_path: Path
    ) -> None:
        written(tmp_path, OVERFLOWS, 4, after)
        assert nonfinite(read(tmp_path, **newest)) == [("5.1", 1, Certainty.CERTAIN), ("0.1", 0, Certainty.HINT)]

    def test_an_overflow_of_a_healthy_job_is_a_hint(self, tmp_path: Path) -> None:
        written(tmp_path, [(SKIPPED, 0, 1), (FINE, 0, 5)], 3, summarize)
        (nan,) = (v for v in diagnose(read(tmp_path, 0)).verdicts if isinstance(v, FirstNonfinite))
        assert nan.certainty is Certainty.HINT and "skipped the optimizer at the end of step 0" in nan.lines[-1]

    def test_where_it_came_again_after_a_skipped_step_is_known(self, tmp_path: Path) -> None:
        written(tmp_path, [(SKIPPED, 0, 2), (NAN, 0, 30)], 4, summarize)
        (nan,) = (v for v in diagnose(read(tmp_path, 0)).verdicts if isinstance(v, FirstNonfinite))
        assert (str(nan.moment), nan.certainty) == ("0.1", Certainty.CERTAIN)
        assert nan.came_again is not None and str(nan.came_again.collective.moment) == "2.1"

    def test_an_old_summary_does_not_know_and_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It has the first NaN or Inf of all, and no marks of steps."""
        monkeypatch.setattr(summary, "_MARKS", frozenset())
        monkeypatch.setattr(nonfinite_runs.NonfiniteRuns, "of_part", lambda *_, **__: [])
        written(tmp_path, OVERFLOWS, 4, summarize)
        nan = next(v for v in diagnose(read(tmp_path, 0)).verdicts if isinstance(v, FirstNonfinite))
        assert (str(nan.moment), nan.certainty) == ("0.1", Certainty.LIKELY)
        assert any("does not say whether a gradient scaler skipped the step" in line for line in nan.lines)

    def test_what_it_only_counts_is_no_beginning(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nonfinite_runs.NonfiniteRuns, "of_part", lambda *_, **__: [])
        written(tmp_path, [(NAN, 0, 1), (FINE, 0, 12), (NAN, 1, 30)], 5, summarize)
        nan = next(v for v in diagnose(read(tmp_path, 0)).verdicts if isinstance(v, FirstNonfinite))
        assert nan.moment.step >= 13 and nan.certainty is Certainty.LIKELY
        assert any("only a summary of earlier steps with NaN or Inf was read" in line for line in nan.lines)

    def test_values_with_which_pipelining_learns_shapes_hide_no_first_one(self, tmp_path: Path) -> None:
        log = TinyLog(tmp_path / "0", segment_bytes=1 << 13)
        log.group("0", (0,), "default_pg")
        stage = "/v/lib/python3.11/site-packages/torch/distributed/pipelining/stage.py"
        flags = fmt.IssueFlag.HAS_FINGERPRINT | fmt.IssueFlag.SENT_NONFINITE
        log.complete(log.issue(0, 1, stack=log.stack((stage, 1945, "_forward_metadata_inference")), flags=flags))
        log.next_segment()
        log.complete(log.issue(0, 2, stack=log.stack(("train.py", 7, "main")), flags=flags))
        for _ in range(2):
            log.next_segment()
            log.complete(log.issue(0, log.records + 1))
            summarize(log.folder)
        assert nonfinite(read(tmp_path, 0)) == [("0.2", 0, Certainty.CERTAIN)]

    def test_it_stays_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nonfinite_runs, "_MOST_KEPT", 10)
        written(tmp_path, [(NAN, 0, 1), (FINE, 0, 1)] * 30, 4, summarize, world=1)
        log = read_columns(tmp_path / "0", 0)
        there = log.step[log.sent_nonfinite].tolist()
        assert there[0] == 0 and len(there) <= 13 and there[-2:] == [56, 58]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from([FINE, FINE, NAN, SKIPPED]), st.integers(0, 1), st.sampled_from([1, 2, 12]))),
    st.integers(1, 9),
    st.booleans(),
)
def test_why_says_the_same_of_whole_and_of_summarized_logs(parts: Parts, each: int, folds: bool) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        written(Path(one), parts, each, lambda _: None)
        written(Path(two), parts, each, folded if folds else summarize)
        whole = nonfinite(read(Path(one)))
        assert nonfinite(read(Path(two), 0))[:1] == whole[:1]
        assert nonfinite(read(Path(two), newest_rows=1))[:1] == whole[:1]


def test_steps_count_for_the_time_before_them_and_none_at_such_a_time() -> None:
    draw = np.random.default_rng(3)
    for _ in range(50):
        bad = np.unique(draw.integers(0, 40, draw.integers(1, 12)))
        when = np.sort(draw.integers(0, 40, draw.integers(0, 60)))
        steps = draw.integers(1, 5, len(when))
        after, counted = steps_between(bad, when, steps)
        ends = [*bad[1:].tolist(), 40]
        naive = [int(steps[(when > begin) & (when < end)].sum()) for begin, end in zip(bad.tolist(), ends, strict=True)]
        assert dict(zip(after.tolist(), counted.tolist(), strict=True)) == {
            at: count for at, count in enumerate(naive) if count
        }
