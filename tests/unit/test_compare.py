"""The verdict on a replay, from what the rank's agent says."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import capsules
import pytest
from capsules import IMAGE, MANIFEST, RANK, make_capsule

from prismdbg.capsule.manifest import Incident, IncidentKind, Manifest
from prismdbg.errors import RankLost, WaitTimeout
from prismdbg.workflows.compare import Outcome, Verdict, ended_by, run_to_end
from prismdbg.workflows.replay import LiveReplay

NONE = {"compared": 0, "fingerprints": 0, "synthesized": 0, "missing": 0}
END = {"event": "end_of_log", "moment": "3.1"}
HANG = Incident(kind=IncidentKind.HANG, text="rank 0 waited 5 s")


class PlayedRank:
    """Says these events after `resume`, then is silent, or gone."""

    def __init__(self, events: list[dict[str, Any]], gone: bool = False) -> None:
        self._events, self._gone = deque(events), gone

    def ask(self, verb: str, **_: Any) -> dict[str, Any]:
        return {"moment": "2.2", "tally": NONE} if verb == "progress" else {}

    def next_event(self, _timeout_s: float, what: str) -> dict[str, Any]:
        if self._events:
            return self._events.popleft()
        raise RankLost("gone") if self._gone else WaitTimeout(f"waited for {what}")

    def wait(self, _bound_s: float) -> int:
        """As the running container: its exit code."""
        return 137


def judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *events: dict[str, Any],
    in_flight: tuple[int, ...] = (),
    incident: Incident = HANG,
    records: range = range(1),
    gone: bool = False,
    manifest: Manifest = IMAGE,
) -> Verdict:
    monkeypatch.setattr(capsules, "RANK", {**RANK, "in_flight": list(in_flight), "redacted_arguments": ["--key"]})
    capsule = make_capsule(tmp_path / "capsule", replace(manifest, incident=incident))
    rank = PlayedRank(list(events), gone)
    first, last = records.start, records.stop - 1
    live = SimpleNamespace(capsule=capsule, client=rank, running=rank, first_record=first, end_record=last)
    return run_to_end(cast(LiveReplay, live), until=None, strict=False, timeout_s=0.2, say=lambda _: None)


def test_same_rests_on_collectives_that_were_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judged(tmp_path, monkeypatch, {**END, "tally": {**NONE, "compared": 3, "fingerprints": 2}})
    assert verdict.outcome is Outcome.SAME
    assert verdict.summary == "same: the run that was, to 2.2 (3 collectives compared, 2 by what the rank sent)"


def test_a_hang_that_a_synthesized_peer_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = {"event": "synthesized", "moment": "2.2", "collective": {"op": "allreduce_", "record_id": 7}}
    end = {**END, "tally": {**NONE, "synthesized": 1}}
    verdict = judged(tmp_path, monkeypatch, answered, end, in_flight=(7,))
    assert verdict.outcome is Outcome.UNHUNG
    assert verdict.summary == (
        "un-hung: what the rank waited in at 2.2 got a synthesized peer's answer, and it went on to 3.1"
    )
    assert any("nothing recorded was left to compare" in note for note in verdict.notes)


def test_a_hang_whose_answer_came_after_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = {"event": "finished", "code": 0, "moment": "2.2", "tally": NONE}
    verdict = judged(tmp_path, monkeypatch, finished, in_flight=(7,))
    assert verdict.summary == (
        "un-hung: what the rank waited in at 2.2 got its recorded answer, and it came to its end"
    )


def test_a_hang_that_goes_on_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WaitTimeout, match=r"did not reach its end within 0.2 s; it was at 2.2"):
        judged(tmp_path, monkeypatch, in_flight=(7,))


def test_nothing_between_a_and_b(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judged(tmp_path, monkeypatch, records=range(1, 1))
    assert verdict.outcome is Outcome.NOTHING
    assert verdict.summary == "nothing to compare: the rank issued no collective between A and B, 2.2"


def test_a_rank_that_is_lost_without_a_tally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    died = Incident(kind=IncidentKind.LOST, text="rank 0 died")
    verdict = judged(tmp_path, monkeypatch, gone=True, incident=died)
    assert (verdict.outcome, verdict.exit_code) == (Outcome.SAME, 137)
    assert "its process ended without a last word: SIGKILL (exit code 137)" in verdict.notes


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
    request = Incident(kind=IncidentKind.REQUEST, text="by hand")
    verdict = judged(tmp_path, monkeypatch, raised, finished, incident=request, manifest=manifest)
    assert verdict.outcome is Outcome.DIVERGED
    assert any("the values of --key; the program gets '<redacted>'" in note for note in verdict.notes) is named
