"""The verdict on a replay, from what the rank's agent says."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import capsules
import psutil
import pytest
from capsules import IMAGE, MANIFEST, RANK, make_capsule
from tiny_log import TinyLog, write_training
from waiting import wait_for

from prismdbg.capsule.log.coverage import NO_STEP_BEFORE
from prismdbg.capsule.log.reader import read_log
from prismdbg.capsule.manifest import Incident, IncidentKind, Manifest
from prismdbg.errors import RankLost, WaitTimeout
from prismdbg.jobs.replay import compare, silence
from prismdbg.jobs.replay.compare import Verdict, ended_by, run_to_end
from prismdbg.jobs.replay.replay import LiveReplay
from prismdbg.jobs.replay.verdict import End, Outcome
from prismdbg.model import deadline
from prismdbg.model.collective import TensorMeta
from prismdbg.model.deadline import Deadline
from prismdbg.model.moment import Moment
from prismdbg.runtime.limits import LimitReached, reached, usual
from prismdbg.session.causes import ALL_HIDDEN, Unhidden
from tests.unit.logs import lone_collective

NONE = {"compared": 0, "fingerprints": 0, "synthesized": 0, "missing": 0}
END = {"event": "end_of_log", "moment": "3.1"}
REQUEST = Incident(kind=IncidentKind.REQUEST, text="by hand")
HANG = Incident(kind=IncidentKind.HANG, text="rank 0 waited 5 s")


class PlayedRank:
    """Says these events after `resume`, then is silent, or gone."""

    tally: ClassVar[dict[str, Any]] = NONE
    met: ClassVar[str] = ""  # a limit of the replay
    pid: ClassVar[int | None] = None

    def __init__(self, events: list[dict[str, Any]], gone: bool = False) -> None:
        self._events, self._gone = deque(events), gone

    def ask(self, verb: str, **_: Any) -> dict[str, Any]:
        return {"moment": "2.2", "tally": self.tally} if verb == "progress" else {}

    def next_event(self, _timeout_s: float, what: str) -> dict[str, Any]:
        if self._events:
            return self._events.popleft()
        raise RankLost("gone") if self._gone else WaitTimeout(f"waited for {what}")

    def wait(self, _bound_s: float) -> int:
        """As the running container: its exit code."""
        return 137

    def require_no_limit_met(self, *, ends: bool) -> None:
        if self.met:
            raise reached(self.met, usual())

    def rank_pid(self) -> int | None:
        return self.pid


def judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *events: dict[str, Any],
    in_flight: tuple[int, ...] = (),
    incident: Incident = HANG,
    records: range = range(1),
    gone: bool = False,
    manifest: Manifest = IMAGE,
    past: int = 0,
    until: Moment | None = None,
    unhidden: Unhidden = ALL_HIDDEN,
    timeout_s: float = 0.2,
    tolerance: float = 0.0,
) -> Verdict:
    """`past`: of the log's six collectives, how many lie before the start."""
    where = {"in_flight": list(in_flight), "past_records": past}
    monkeypatch.setattr(capsules, "RANK", {**RANK, **where, "redacted_arguments": ["--key"]})
    tmp_path.mkdir(exist_ok=True)
    capsule = make_capsule(tmp_path / "capsule", replace(manifest, incident=incident))
    rank = PlayedRank(list(events), gone)
    first, last = records.start, records.stop - 1
    live = SimpleNamespace(
        capsule=capsule,
        client=rank,
        running=rank,
        runtime="local",
        first_record=first,
        end_record=last,
        unhidden=unhidden,
    )
    return run_to_end(
        cast(LiveReplay, live),
        until=until,
        strict=False,
        tolerance=tolerance,
        deadline=Deadline.after(timeout_s),
    )


ALL = {**NONE, "compared": 6, "fingerprints": 6}
COVERED = {"event": "all_compared", "moment": "2.2", "tally": ALL}


def test_identical_says_what_it_rests_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = {**ALL, "object_notes": 1}
    verdict = judged(tmp_path, monkeypatch, {**END, "tally": tally}, incident=REQUEST, past=0)
    assert verdict.outcome is Outcome.IDENTICAL
    assert verdict.summary == (
        "identical up to 2.2: 6 collectives compared, 5 with their payload fingerprints, 1 pickled object differs"
    )
    assert verdict.strength.whole_steps == 3 and not verdict.strength.is_thin
    assert "compared from 0.1 to 2.2, with 3 complete steps" in verdict.notes


@pytest.mark.parametrize(("last", "steps"), [("2.1", 2), ("1.2", 2), ("1.1", 1)])
def test_the_step_of_the_end_moment_counts_only_where_the_log_shows_that_it_was_over(
    last: str, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = Moment.parse(last)
    count = 2 * end.step + end.collective
    seen = {**END, "tally": {**NONE, "compared": count, "fingerprints": count}}
    manifest = replace(MANIFEST, moment_b=end)
    verdict = judged(tmp_path, monkeypatch, seen, manifest=manifest, incident=REQUEST, past=0, records=range(count))
    assert verdict.outcome is Outcome.IDENTICAL and verdict.strength.whole_steps == steps


STOPPED = {"event": "stopped", "reason": "until", "moment": "2.2"}


@pytest.mark.parametrize(
    ("event", "tally", "until", "found"),
    [
        (STOPPED, ALL, Moment(2, 2), (End.UNTIL, Outcome.IDENTICAL)),
        ({**END, "tally": {**NONE, "compared": 6}}, {}, None, (End.NEXT_CALL, Outcome.INCONCLUSIVE)),
    ],
)
def test_the_step_in_which_a_replay_stops_or_after_which_its_verdict_is_open_does_not_count(
    event: dict[str, Any], tally: dict[str, Any], until: Moment | None, found: tuple[End, Outcome],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(PlayedRank, "tally", tally)
    verdict = judged(tmp_path, monkeypatch, event, incident=REQUEST, past=0, until=until)
    assert (verdict.end, verdict.outcome) == found and verdict.strength.whole_steps == 2


def test_by_tolerance_the_verdict_says_what_was_only_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = {**ALL, "within": 2, "unsketched": 0, "farthest": 0.00312}
    state = {"event": "state", "moment": "2.0", "expected": "a", "actual": "b", "equal": False}
    verdict = judged(tmp_path, monkeypatch, state, {**END, "tally": tally}, incident=REQUEST, tolerance=0.01)
    assert verdict.outcome is Outcome.WITHIN
    assert verdict.summary == (
        "within tolerance 0.01 up to 2.2, not bit for bit: 6 collectives compared, "
        "4 with their payload fingerprints, 2 only by sketches, at most about 0.003 apart"
    )
    assert "the parameters differ in their bits; a tolerance compares only what the rank sends" in verdict.notes


def test_a_nan_that_occurs_again_by_tolerance_is_not_said_to_be_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nan = Incident(kind=IncidentKind.NAN, text="rank 0 sent NaN")
    tally = {**ALL, "within": 2, "unsketched": 0, "farthest": 0.001}
    verdict = judged(tmp_path, monkeypatch, {**END, "tally": tally}, incident=nan, tolerance=0.01)
    assert "the NaN occurs again, within the tolerance: rank 0 sent NaN" in verdict.notes


@pytest.mark.parametrize(("past", "said"), [(5, True), (0, False)])
def test_a_capsule_of_a_hang_without_a_step_before_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, past: int, said: bool
) -> None:
    tally = {**NONE, "compared": 6 - past, "fingerprints": 6 - past}
    verdict = judged(tmp_path, monkeypatch, {**END, "tally": tally}, past=past)
    assert (NO_STEP_BEFORE in verdict.notes) is said


def test_what_was_not_hidden_is_noted_and_a_possible_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "the replay may see files that were created or changed after the start moment: too many entries to check in "
        "/data"
    )
    whole = judged(tmp_path / "a", monkeypatch, {**END, "tally": ALL}, incident=REQUEST, unhidden=Unhidden(("/data",)))
    assert text in whole.notes
    diverged = {"event": "diverged", "moment": "2.2", "differences": [], "actual": {"frames": []}, "tally": ALL}
    other = judged(tmp_path / "b", monkeypatch, diverged, incident=REQUEST, unhidden=Unhidden(("/data",)))
    assert other.story is not None and f"possible: {text}" in other.story["causes"]["found"]


def test_one_collective_is_thin_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = {**NONE, "compared": 1, "fingerprints": 1}
    verdict = judged(tmp_path, monkeypatch, {**END, "tally": tally}, incident=REQUEST, past=5)
    assert verdict.summary == (
        "identical up to 2.2: 1 collective compared, 1 with its payload fingerprint; too little to be sure"
    )


def test_objects_that_differ_may_be_all_that_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an object collective only the size is left then."""
    tally = {**ALL, "object_notes": 3}
    verdict = judged(tmp_path, monkeypatch, {**END, "tally": tally}, incident=REQUEST, past=0)
    assert verdict.summary == (
        "identical up to 2.2: 6 collectives compared, 3 with their payload fingerprints, 3 pickled objects differ; "
        "too little to be sure"
    )


@pytest.mark.parametrize("tally", [{"fingerprints": 0}, {"fingerprints": 6, "object_notes": 6}])
def test_calls_alone_are_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tally: dict[str, int]) -> None:
    """A rank that only receives may compute anything."""
    verdict = judged(tmp_path, monkeypatch, {**END, "tally": ALL | tally}, incident=REQUEST, past=0)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.why == "nothing that the rank computed was compared, only its calls"


def test_fewer_than_were_recorded_are_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judged(tmp_path, monkeypatch, {**END, "tally": {**ALL, "compared": 5}}, incident=REQUEST, past=0)
    assert verdict.summary == (
        "inconclusive: only 5 of 6 collectives were compared "
        "(5 collectives compared, 6 with their payload fingerprints)"
    )


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        ({"identity": "group 0 #3", "record_id": 40}, Outcome.INCONCLUSIVE),
        ({"identity": "group 0 #6", "record_id": 2}, Outcome.IDENTICAL),  # never answered when it was recorded
        ({"op": "allreduce_", "record_id": 3}, Outcome.INCONCLUSIVE),  # in flight at the start
    ],
)
def test_an_answer_that_the_recorded_rank_had_must_be_the_recorded_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: dict[str, Any], outcome: Outcome
) -> None:
    told = {"event": "synthesized", "moment": "1.2", "collective": call}
    verdict = judged(tmp_path, monkeypatch, told, {**END, "tally": ALL}, incident=REQUEST, past=0)
    assert verdict.outcome is outcome


def test_a_hang_that_a_synthesized_peer_answered_is_inconclusive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capsules, "write_training", hung_training)
    answered = {"event": "synthesized", "moment": "2.2", "collective": {"op": "allreduce_", "record_id": 6}}
    end = {**END, "tally": {**NONE, "synthesized": 1}}
    verdict = judged(tmp_path, monkeypatch, answered, end, in_flight=(6,), past=7)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.summary.startswith("inconclusive: no collective was compared")
    assert (
        "the collective at 2.3, in which the rank hung, got a synthesized answer: that the program then continued to "
        "3.1 says nothing about the hang"
    ) in verdict.notes


def test_an_open_call_of_a_capsule_taken_by_hand_is_not_called_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capsules, "write_training", hung_training)
    answered = {"event": "synthesized", "moment": "2.3", "collective": {"op": "allreduce_", "record_id": 6}}
    end = {**END, "tally": {**NONE, "synthesized": 1}}
    verdict = judged(tmp_path, monkeypatch, answered, end, incident=REQUEST, in_flight=(6,), past=7)
    assert (
        "the collective at 2.3, which had no answer when the recording ended, got a synthesized answer, and the "
        "program continued to 3.1"
    ) in verdict.notes
    assert not any("hung" in note for note in verdict.notes)


def hung_training(*arguments: Any, **more: Any) -> TinyLog:
    """With a call at its end that is not answered."""
    log = write_training(*arguments, **more)
    log.issue(2, 3)
    return log


def test_a_hang_whose_answer_came_after_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = {"event": "finished", "code": 0, "moment": "2.2", "tally": NONE}
    verdict = judged(tmp_path, monkeypatch, finished, in_flight=(5,), past=6)
    assert verdict.outcome is Outcome.INCONCLUSIVE


def test_a_hang_that_goes_on_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WaitTimeout, match=r"did not reach its end within 0.2 s; it was at 2.2"):
        judged(tmp_path, monkeypatch, in_flight=(5,), past=6)


def test_a_rank_that_is_gone_after_the_time_is_up_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that was stopped (Ctrl-Z) learns of it late: by then the starter has ended the rank."""

    def stopped(self: PlayedRank, _timeout_s: float, _what: str) -> dict[str, Any]:
        if self._events:
            return self._events.popleft()
        monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: math.inf))
        raise RankLost("gone")

    died = replace(HANG, kind=IncidentKind.LOST)
    monkeypatch.setattr(PlayedRank, "next_event", stopped)
    with pytest.raises(WaitTimeout, match=r"did not reach its end within 0.2 s"):
        judged(tmp_path, monkeypatch, incident=died)
    monkeypatch.setattr(deadline, "time", time)
    late = judged(tmp_path / "late", monkeypatch, COVERED, incident=died)
    assert (late.outcome, late.end) == (Outcome.INCONCLUSIVE, End.QUIET)


def test_a_rank_that_hangs_again_after_the_last_recorded_collective(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "LEAST_S", 0.05)
    verdict = judged(tmp_path, monkeypatch, COVERED, past=0)
    assert (verdict.outcome, verdict.end) == (Outcome.IDENTICAL, End.SILENT)
    again = "it hangs again: no further collective within 0.05 s; in the recording, the longest gap between"
    assert any(note.startswith(again) for note in verdict.notes)
    with pytest.raises(WaitTimeout):
        judged(tmp_path / "other", monkeypatch, COVERED, incident=REQUEST, past=0)


@pytest.mark.parametrize(
    ("longest_s", "end", "said"),
    [
        (0.0, End.SILENT, "no further collective came after an answer that the recorded rank was still waiting for"),
        (40.0, End.QUIET, "--timeout ended too early"),
    ],
)
def test_silence_after_a_synthesized_answer_is_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest_s: float, end: End, said: str
) -> None:
    """The recorded rank hung because nobody answered. An answered one may be silent for any other reason."""
    monkeypatch.setattr(capsules, "write_training", hung_training)
    monkeypatch.setattr(silence, "LEAST_S", 0.05)
    monkeypatch.setattr(compare, "recorded_silence", lambda *_: silence.Silence(longest_s=longest_s))
    hung = replace(IMAGE, moment_b=Moment(2, 3))
    synthesized = {"event": "synthesized", "moment": "2.3", "collective": {"op": "allreduce_", "record_id": 6}}
    tally = {"compared": 7, "fingerprints": 7, "synthesized": 1, "missing": 0}
    verdict = judged(tmp_path, monkeypatch, synthesized, {**COVERED, "tally": tally}, manifest=hung)
    assert (verdict.outcome, verdict.end) == (Outcome.INCONCLUSIVE, end)
    assert verdict.why.startswith(said)
    assert "hangs again" not in "; ".join(verdict.notes)


def test_a_replay_that_may_only_compute_for_long_does_not_hang_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorded rank was silent for longer between two collectives than the replay was given time."""

    monkeypatch.setattr(compare, "recorded_silence", lambda *_: silence.Silence(longest_s=40.0))
    verdict = judged(tmp_path, monkeypatch, COVERED, past=0)
    assert (verdict.outcome, verdict.end) == (Outcome.INCONCLUSIVE, End.QUIET)
    assert verdict.why.startswith("--timeout ended too early")
    more = (
        "raise --timeout by 120 s to see whether it hangs again: "
        "in the recording, the longest gap between two collectives was 40 s"
    )
    assert more in verdict.notes


def test_how_long_a_recorded_rank_was_silent() -> None:
    """Of each thread, and after its last collective until somebody saw it hang."""
    times = [(1, 1, 2), (2, 5, None), (1, 9, 10), (2, 25, None), (1, 11, 12)]  # thread, created, completed, in seconds
    calls = [
        lone_collective(thread_id=thread, time_created_ns=at * 10**9, time_completed_ns=end and end * 10**9)
        for thread, at, end in times
    ]
    assert max(silence._pauses_ns(calls)) == 20 * 10**9
    on_device = (TensorMeta((4,), "float32", "cuda:0"),)
    calls = [replace(call, inputs=on_device) for call in calls]
    calls.append(replace(calls[-1], time_created_ns=40 * 10**9))  # the thread went on when it had issued the one before
    assert max(silence._pauses_ns(calls)) == 29 * 10**9
    assert silence.Silence(longest_s=20.0).bound_s == 60.0
    assert silence.Silence(longest_s=1.0, hung_s=35.0).bound_s == 35.0
    assert silence.Silence(longest_s=0.1).bound_s == silence.LEAST_S


def test_nothing_between_the_start_and_the_end_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judged(tmp_path, monkeypatch, records=range(1, 1), past=6)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.summary.startswith(
        "inconclusive: the rank issued no collective between the start and the end moment"
    )


@pytest.mark.parametrize(
    ("past", "events", "died_with", "outcome"),
    [
        (0, (COVERED,), 137, Outcome.IDENTICAL),  # at the recorded place
        (0, (COVERED,), None, Outcome.IDENTICAL),  # an old capsule
        (0, (COVERED,), 139, Outcome.DIVERGED),  # of something else
        (0, (), 137, Outcome.RANK_LOST),  # anywhere before it
        (6, (), 137, Outcome.INCONCLUSIVE),  # and there is nothing to compare
    ],
)
def test_a_death_counts_only_at_the_recorded_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    past: int,
    events: tuple[Any, ...],
    died_with: int | None,
    outcome: Outcome,
) -> None:
    died = Incident(kind=IncidentKind.LOST, text="rank 0 died")
    monkeypatch.setitem(RANK, "died_with", died_with)
    verdict = judged(tmp_path, monkeypatch, *events, gone=True, incident=died, past=past)
    assert (verdict.outcome, verdict.exit_code) == (outcome, 137)
    assert "its process ended without an error message: SIGKILL (exit code 137)" in verdict.notes
    same = outcome is Outcome.IDENTICAL
    known = died_with is not None
    assert ("the rank died here, as it did when it was recorded" in verdict.notes) is (same and known)
    unknown = "the rank died here, and how the recorded rank died is unknown"
    assert (unknown in verdict.notes) is (same and not known)


@pytest.mark.parametrize("died_with", [137, None])
def test_a_rank_that_goes_on_where_the_recorded_one_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_with: int | None
) -> None:
    """The incident did not happen again, and what is identical up to there is told."""
    monkeypatch.setitem(RANK, "died_with", died_with)
    died = Incident(kind=IncidentKind.LOST, text="rank 0 died")
    verdict = judged(tmp_path, monkeypatch, {**END, "tally": ALL}, incident=died)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.summary.startswith(
        "inconclusive: the incident did not happen again: the replay is identical up to the end moment"
    )
    assert verdict.summary.endswith("(6 collectives compared, 6 with their payload fingerprints)")


@pytest.mark.parametrize(
    ("timeout_s", "end", "then"),
    [
        (5.0, End.SILENT, "the rank stayed alive and issued no further collective"),
        (0.2, End.QUIET, "the rank stayed alive and issued no further collective until --timeout ended"),
    ],
)
def test_a_rank_that_is_silent_where_the_recorded_one_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout_s: float, end: End, then: str
) -> None:
    """It slept or computed when somebody killed it: no replay shows that again, and none waits for it."""
    monkeypatch.setattr(silence, "LEAST_S", 0.5)
    monkeypatch.setitem(RANK, "died_with", 137)
    died = Incident(kind=IncidentKind.LOST, text="rank 0 died")
    verdict = judged(tmp_path, monkeypatch, COVERED, incident=died, timeout_s=timeout_s)
    assert (verdict.outcome, verdict.end, verdict.moment) == (Outcome.INCONCLUSIVE, end, "2.2")
    assert verdict.summary == (
        f"inconclusive: the incident did not happen again: the replay is identical up to the end moment, then {then}; "
        "the recorded rank died: SIGKILL (exit code 137), a signal that usually comes from outside the program "
        "(6 collectives compared, 6 with their payload fingerprints)"
    )
    assert not any("raise --timeout" in note for note in verdict.notes)


@pytest.mark.parametrize(("died_with", "waits"), [(139, True), (None, True), (137, False), (143, False)])
def test_a_replay_waits_for_a_death_that_may_happen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_with: int | None, waits: bool
) -> None:
    """A rank that computed for a minute and then crashed computes for a minute in a replay, too."""
    monkeypatch.setitem(RANK, "died_with", died_with)
    died = Incident(kind=IncidentKind.LOST, text="rank 0 died")
    log = read_log(make_capsule(tmp_path / "one").log)
    ended_ns = max(silence._ended_ns(record) for record in log.collectives) + log.wall_offset_ns
    for lived_s in (60, 90_000):
        made = replace(MANIFEST, incident=died, created_ns=ended_ns + lived_s * 10**9)
        capsule = make_capsule(tmp_path / f"after-{lived_s}", made)
        bound_s = silence.recorded_silence(capsule, read_log(capsule.log)).bound_s
        assert bound_s == (min(lived_s, silence.MOST_LIVED_S) if waits else silence.LEAST_S)


def test_a_replay_that_is_cut_says_how_far_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlayedRank, "tally", {**NONE, "compared": 4})
    cut = r"within 0.2 s; it was at 2.2, with 4 collectives compared and no difference"
    with pytest.raises(WaitTimeout, match=cut):
        judged(tmp_path, monkeypatch, incident=REQUEST)


def test_how_a_rank_died_that_ran_out_of_memory_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capsules, "write_training", training_with("incident", thread=True, **OUT_OF_MEMORY))
    raised = {"event": "exception", "moment": "2.2", "thread": True, **OUT_OF_MEMORY}
    oom = Incident(kind=IncidentKind.OUT_OF_MEMORY, text="RuntimeError: out of memory")
    verdict = judged(tmp_path, monkeypatch, raised, COVERED, gone=True, incident=oom)
    assert verdict.outcome is Outcome.IDENTICAL
    assert "the rank died here, and how the recorded rank died is unknown" in verdict.notes


OUT_OF_MEMORY = {"type": "RuntimeError", "text": "out of memory", "traceback": []}


def training_with(kind: str, **fields: Any) -> Callable[..., TinyLog]:
    """A log with a note at its end."""

    def training(*arguments: Any, **more: Any) -> TinyLog:
        log = write_training(*arguments, **more)
        log.note(kind, **{"moment": "2.2", **fields})
        return log

    return training


LINE = '  File "/job/train.py", line 7, in main\n    raise ValueError(key)\n'
IN_TORCH = '  File "/usr/lib/python3.11/site-packages/torch/x.py", line 3, in f\n'
OURS = '  File "/opt/prismdbg/rank/recording/x.py", line 3, in f\n'


@pytest.mark.parametrize(
    ("recorded", "raised", "line", "fingerprints", "said"),
    [
        ("no <redacted> there", "no s3cr3t there", LINE, 6, "identical up to 2.2"),
        ("no ****** there", "no s3cr3t there", LINE, 6, "identical up to 2.2"),
        ("no <redacted> there", "no <redacted> there", LINE, 6, "identical up to 2.2"),
        (
            "no <redacted> there",
            "no s3cr3t here",
            LINE,
            6,
            "diverged at 2.2: the exception is not the recorded exception",
        ),
        ("<redacted>", "anything", LINE.replace("7", "9"), 6, "inconclusive: the text of the recorded exception is"),
        ("<redacted>", "anything", LINE, 0, "inconclusive: nothing that the rank computed was compared"),
        ("no s3cr3t", "no s3cr3t", LINE, 0, "identical up to 2.2"),
    ],
)
def test_of_a_redacted_exception_what_is_left_is_compared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recorded: str,
    raised: str,
    line: str,
    fingerprints: int,
    said: str,
) -> None:
    there = {"type": "ValueError", "text": recorded, "traceback": [LINE, IN_TORCH, OURS, "ValueError: ..."]}
    monkeypatch.setattr(capsules, "write_training", training_with("incident", **there))
    told = {"type": "ValueError", "text": raised, "traceback": [line, IN_TORCH], "moment": "2.2"}
    tally = {**ALL, "fingerprints": fingerprints}
    finished = {"event": "finished", "code": 1, "moment": "2.2", "tally": tally}
    incident = Incident(kind=IncidentKind.EXCEPTION, text=f"ValueError: {recorded}")
    verdict = judged(tmp_path, monkeypatch, {"event": "exception", **told}, finished, incident=incident)
    assert verdict.summary.startswith(said)
    is_redacted = recorded != raised or "<redacted>" in raised
    note = (
        "the text of a recorded exception is redacted: only its type, the line that raised it and what is left of its "
        "text were compared"
    )
    assert (note in verdict.notes) is (is_redacted and verdict.outcome is not Outcome.DIVERGED)


@pytest.mark.parametrize(("number", "outcome"), [("7", Outcome.IDENTICAL), ("9", Outcome.INCONCLUSIVE)])
def test_where_an_exception_was_raised_is_known_from_the_first_of_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str, outcome: Outcome
) -> None:
    first = {"type": "ValueError", "text": "<redacted>", "traceback": [LINE, "ValueError: ..."], "place": 1, "nth": 8}

    def training(*arguments: Any, **more: Any) -> TinyLog:
        log = training_with("incident", **first)(*arguments, **more)
        log.note("incident", moment="2.2", type="ValueError", text="<redacted>", place=1, nth=9)
        return log

    monkeypatch.setattr(capsules, "write_training", training)
    told = {"event": "exception", "type": "ValueError", "text": "anything", "moment": "2.2"}
    raised = [{**told, "traceback": [line]} for line in (LINE, LINE.replace("7", number))]
    finished = {"event": "finished", "code": 1, "moment": "2.2", "tally": {**ALL, "fingerprints": 6}}
    incident = Incident(kind=IncidentKind.EXCEPTION, text="ValueError: <redacted>")
    assert judged(tmp_path, monkeypatch, *raised, finished, incident=incident).outcome is outcome


@pytest.mark.parametrize("until", [None, Moment(1, 1)])
def test_every_exception_of_a_replay_is_in_the_record(
    until: Moment | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a thread, or printed by the program that then goes on: also before it stops on its way."""
    stopped = {"event": "stopped", "reason": "until", "moment": "1.1"}
    monkeypatch.setattr(PlayedRank, "tally", {**NONE, "compared": 3})
    end = {**END, "tally": ALL} if until is None else stopped
    for number, more in enumerate(({"thread": True}, {})):
        raised = {"event": "exception", "moment": "1.1", "type": "ValueError", "text": "new", **more}
        verdict = judged(tmp_path / str(number), monkeypatch, raised, end, incident=REQUEST, past=0, until=until)
        assert verdict.outcome is Outcome.INCONCLUSIVE and "ValueError: new" in verdict.summary


@pytest.mark.parametrize("thread", [True, None])
@pytest.mark.parametrize(
    ("origin", "past", "outcome"),
    [
        (IMAGE, 4, Outcome.IDENTICAL),  # of the step before the start
        (IMAGE, 2, Outcome.IDENTICAL),  # of the last collective before the start, or soon after it
        (IMAGE, 0, None),
        (MANIFEST, 0, None),
    ],
)
def test_no_replay_raises_again_what_was_raised_before_its_start(
    thread: bool | None,
    origin: Manifest,
    past: int,
    outcome: Outcome | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log of a capsule has some of what led to the start moment, notes of exceptions among it."""
    noted = {"type": "OSError", "text": "upload failed", "moment": "0.2", "thread": thread}
    monkeypatch.setattr(capsules, "write_training", training_with("incident", **noted))
    tally = {**NONE, "compared": 6 - past, "fingerprints": 6 - past}
    verdict = judged(tmp_path, monkeypatch, {**END, "tally": tally}, incident=REQUEST, manifest=origin, past=past)
    demanded = Outcome.INCONCLUSIVE if thread else Outcome.DIVERGED
    assert verdict.outcome is (outcome or demanded), verdict.summary
    assert "OSError: upload failed" in verdict.why or outcome is not None


def test_an_exception_that_is_noted_without_a_moment_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = {"type": "OSError", "text": "upload failed", "moment": None, "thread": True}
    monkeypatch.setattr(capsules, "write_training", training_with("incident", **noted))
    raised = {"event": "exception", **noted, "moment": "0.0"}
    verdict = judged(tmp_path, monkeypatch, raised, {**END, "tally": ALL}, incident=REQUEST, manifest=MANIFEST)
    assert verdict.outcome is Outcome.IDENTICAL


@pytest.mark.parametrize(("code", "outcome"), [(3, Outcome.IDENTICAL), (0, Outcome.DIVERGED)])
def test_the_recorded_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, outcome: Outcome) -> None:
    monkeypatch.setattr(capsules, "write_training", training_with("exit", code=3))
    finished = {"event": "finished", "code": code, "moment": "2.2", "tally": ALL}
    verdict = judged(tmp_path, monkeypatch, finished, incident=REQUEST, past=0)
    assert verdict.outcome is outcome
    looked = any(note.startswith("checked and not found: changed files") for note in verdict.notes)
    assert looked is (outcome is Outcome.DIVERGED)


@pytest.mark.parametrize("code", [3, 0])
def test_what_a_limit_of_the_replay_made_of_it_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A program that finds /dev/shm full raises, and ends with a code of its own."""
    monkeypatch.setattr(PlayedRank, "met", "shm")
    finished = {"event": "finished", "code": code, "moment": "2.2", "tally": ALL}
    if code == 0:
        assert judged(tmp_path, monkeypatch, finished, incident=REQUEST, past=0).outcome is Outcome.IDENTICAL
        return
    with pytest.raises(LimitReached, match=r"shared memory"):
        judged(tmp_path, monkeypatch, finished, incident=REQUEST, past=0)


def test_what_stops_on_its_way_is_compared_up_to_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = {"event": "stopped", "reason": "until", "moment": "1.1"}
    monkeypatch.setattr(PlayedRank, "tally", {**NONE, "compared": 3, "fingerprints": 3, "missing": 4})
    verdict = judged(tmp_path, monkeypatch, stopped, incident=REQUEST, past=0, until=Moment(1, 1))
    assert verdict.summary == ("identical up to 1.1: 3 collectives compared, 3 with their payload fingerprints")
    monkeypatch.setattr(PlayedRank, "tally", {**NONE, "compared": 2, "missing": 5})
    verdict = judged(tmp_path / "b", monkeypatch, stopped, incident=REQUEST, past=0, until=Moment(1, 1))
    assert verdict.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("until", "outcome"),
    [
        (replace(IMAGE.moment_b, op=9), Outcome.INCONCLUSIVE),
        (IMAGE.moment_b, Outcome.IDENTICAL),
        (None, Outcome.IDENTICAL),
    ],
)
def test_an_operator_after_the_last_collective_that_was_not_reached_was_not_compared(
    until: Moment | None, outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not exist."""
    verdict = judged(tmp_path, monkeypatch, {**END, "tally": ALL}, incident=REQUEST, until=until)
    assert verdict.outcome is outcome
    is_said = verdict.why == f"{until}, an operator after the last collective, was not reached"
    assert is_said is (outcome is Outcome.INCONCLUSIVE)


def test_what_stops_before_its_incident_does_not_say_that_it_occurs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a script with `run_to` does, which gives no `until`."""
    stopped = {"event": "stopped", "reason": "until", "moment": "1.1"}
    monkeypatch.setattr(PlayedRank, "tally", {**NONE, "compared": 3, "fingerprints": 3})
    nan = Incident(kind=IncidentKind.NAN, text="rank 0 sends a NaN")
    verdict = judged(tmp_path, monkeypatch, stopped, incident=nan)
    assert verdict.outcome is Outcome.IDENTICAL
    assert not any("occurs again" in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("code", "said"), [(-4, "SIGILL (exit code -4)"), (132, "SIGILL (exit code 132)"), (3, "exit code 3")]
)
def test_what_ended_a_process_is_named(code: int, said: str) -> None:
    assert ended_by(code) == said


@pytest.mark.parametrize(("manifest", "named"), [(MANIFEST, True), (IMAGE, False)])
def test_a_redacted_argument_is_named_where_the_end_is_another(
    manifest: Manifest, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored process still knows it."""
    raised = {"event": "exception", "moment": "0.0", "type": "ValueError", "text": "no such key"}
    finished = {"event": "finished", "code": 1, "moment": "0.0", "tally": {**NONE, "missing": 4}}
    verdict = judged(tmp_path, monkeypatch, raised, finished, incident=REQUEST, manifest=manifest)
    assert verdict.outcome is Outcome.DIVERGED
    assert any("the values of --key; the program gets '<redacted>'" in note for note in verdict.notes) is named


@pytest.mark.parametrize(("moment", "counts"), [("2.4", False), ("3.1", True)])
def test_parameters_that_it_began_with_are_no_evidence(moment: str, counts: bool) -> None:
    """It may compute nothing in the step in which the capsule begins."""
    begins = SimpleNamespace(records=[SimpleNamespace(moment=Moment(2, 1))])
    assert compare._is_computed(Moment.parse(moment), begins) is counts  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tally", "died_with", "outcome"),
    [
        ({"fingerprints": 0}, None, Outcome.INCONCLUSIVE),  # only its calls, and nobody knows how it died
        ({"fingerprints": 0}, 137, Outcome.INCONCLUSIVE),
        ({"fingerprints": 6, "object_notes": 6}, None, Outcome.INCONCLUSIVE),
        ({"fingerprints": 1}, None, Outcome.IDENTICAL),
    ],
)
def test_a_death_after_calls_alone_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tally: dict[str, int], died_with: int | None, outcome: Outcome
) -> None:
    """The tally of the last collective counts, too, where the process has no last word."""
    monkeypatch.setitem(RANK, "died_with", died_with)
    died = Incident(kind=IncidentKind.LOST, text="rank 0 died")
    covered = {**COVERED, "tally": ALL | tally}
    assert judged(tmp_path, monkeypatch, covered, gone=True, incident=died).outcome is outcome


def test_a_verdict_on_calls_and_parameters_alone_is_thin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of what was sent was compared."""
    state = {"event": "state", "moment": "2.1", "equal": True, "expected": "1", "actual": "1"}
    verdict = judged(tmp_path, monkeypatch, state, {**END, "tally": {**ALL, "fingerprints": 0}}, incident=REQUEST)
    assert verdict.outcome is Outcome.IDENTICAL
    assert verdict.summary.endswith("6 collectives compared, 0 with their payload fingerprints; too little to be sure")


def test_what_a_long_replay_tells_is_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [{"event": "synthesized", "moment": "1.2", "collective": {"identity": "group 0 #3"}}] * 3000
    notes = [{"event": "note", "text": "x" * 5000}] * 3000
    states = [{"event": "state", "moment": "2.1", "equal": True, "expected": "1", "actual": "1"}] * 3000
    verdict = judged(
        tmp_path, monkeypatch, *told, *notes, *states, {**END, "tally": ALL}, incident=REQUEST, timeout_s=60.0
    )
    assert (len(verdict.synthesized.messages), verdict.synthesized.left_out, verdict.lacking) == (1000, 2000, 3000)
    assert (len(verdict.states.messages), verdict.states.left_out) == (1000, 2000)
    assert "2,900 further notes of the rank left out" in verdict.notes and len(verdict.notes) < 120


def test_a_program_that_raises_without_end_ends_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each exception counts for the verdict, so none can be left out."""
    raised = {"event": "exception", "moment": "1.1", "type": "ValueError", "text": "x", "traceback": [], "thread": True}
    monkeypatch.setattr(compare, "MAX_RAISED", 100)
    with pytest.raises(RankLost, match=r"more than 100 exceptions"):
        judged(tmp_path, monkeypatch, *[raised] * 101, incident=REQUEST)
    large = {**raised, "text": "x" * (1 << 20)}
    with pytest.raises(RankLost, match=r"or 16 MiB of them"):
        judged(tmp_path / "large", monkeypatch, *[large] * 17, incident=REQUEST)


def test_a_rank_that_is_stopped_needs_no_more_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with psutil.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        try:
            monkeypatch.setattr(PlayedRank, "pid", child.pid)
            with pytest.raises(WaitTimeout) as runs:
                judged(tmp_path / "runs", monkeypatch, incident=REQUEST)
            child.send_signal(signal.SIGSTOP)
            wait_for(lambda: child.status() == psutil.STATUS_STOPPED, 20, "the process to stop")
            with pytest.raises(WaitTimeout) as stopped:
                judged(tmp_path / "stopped", monkeypatch, incident=REQUEST)
        finally:
            child.kill()
    assert runs.value.hint == "give a longer --timeout"
    assert f"process {child.pid} is stopped" in stopped.value.hint
