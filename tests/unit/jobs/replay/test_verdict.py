"""The verdict, over every way in which a replay may end."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from prismdbg.capsule.manifest import IncidentKind
from prismdbg.capsule.secrets.masking import REDACTED
from prismdbg.capsule.spawned import NOT_RECORDED
from prismdbg.jobs.replay.exceptions import as_recorded
from prismdbg.jobs.replay.verdict import End, Outcome, Recorded, Seen, decide

SAME, OTHER_RUN, OPEN, GONE = Outcome.IDENTICAL, Outcome.DIVERGED, Outcome.INCONCLUSIVE, Outcome.RANK_LOST
REQUEST, LOST, HANG, RAISED = IncidentKind.REQUEST, IncidentKind.LOST, IncidentKind.HANG, IncidentKind.EXCEPTION
OOM = IncidentKind.OUT_OF_MEMORY
ERROR, OTHER, ASKED = "ValueError: no", "KeyError: no", f"RuntimeError: {NOT_RECORDED}: what is in a queue"
FEW = 7
NEAR = Outcome.WITHIN


def recorded(kind: IncidentKind, **more: object) -> Recorded:
    return replace(Recorded(incident=kind, required=FEW), **more)  # type: ignore[arg-type]


def seen(end: End, **more: object) -> Seen:
    return replace(Seen(end=end, compared=FEW, fingerprinted=FEW), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "replay", "outcome"),
    [
        # of what the rank computed, something was compared: what it sent, its parameters, or how it failed
        (recorded(REQUEST, goes_on=True), seen(End.NEXT_CALL, fingerprinted=0), OPEN),
        (recorded(REQUEST, goes_on=True), seen(End.NEXT_CALL, fingerprinted=1), SAME),
        (recorded(REQUEST, goes_on=True), seen(End.NEXT_CALL, fingerprinted=0, has_state=True), SAME),
        (recorded(RAISED, raised=ERROR), seen(End.FINISHED, fingerprinted=0, raised=ERROR, exit_code=1), SAME),
        (recorded(RAISED, raised=ERROR), seen(End.FINISHED, fingerprinted=0, exit_code=1), OTHER_RUN),
        # by tolerance: what is close is never called identical, what differs by an unknown amount is not known
        (recorded(REQUEST, goes_on=True), seen(End.NEXT_CALL, by_tolerance=True), SAME),
        (recorded(REQUEST, goes_on=True), seen(End.NEXT_CALL, by_tolerance=True, fingerprinted=0, within=2), NEAR),
        (recorded(REQUEST, goes_on=True), seen(End.NEXT_CALL, by_tolerance=True, within=2, unsketched=1), OPEN),
        (recorded(REQUEST, goes_on=True), seen(End.NEXT_CALL, by_tolerance=True, fingerprinted=0, unsketched=1), OPEN),
        (recorded(REQUEST, goes_on=True), seen(End.DIFFERED, by_tolerance=True, within=2), OTHER_RUN),
        (recorded(REQUEST, goes_on=True), seen(End.UNTIL, parameters_differ_at="3.0"), OTHER_RUN),
        (recorded(REQUEST), seen(End.UNTIL, parameters_differ_at="3.0", by_tolerance=True), OPEN),
        (recorded(REQUEST), seen(End.UNTIL, parameters_differ_at="3.0", by_tolerance=True, within=1), NEAR),
        (recorded(REQUEST, exit_code=0), seen(End.FINISHED, exit_code=1, by_tolerance=True, within=1), OTHER_RUN),
        (recorded(LOST), seen(End.NEXT_CALL, by_tolerance=True, within=1), OPEN),
        # it asked for what the recording does not have
        (recorded(REQUEST, goes_on=True), seen(End.FINISHED, raised=ASKED, missing=1, exit_code=1), OPEN),
        (recorded(REQUEST, exit_code=0), seen(End.FINISHED, raised=ASKED, exit_code=1), OPEN),
        (recorded(REQUEST, exit_code=0), seen(End.FINISHED, also_raised=(ASKED,), missing=1, exit_code=0), OPEN),
        (recorded(REQUEST, goes_on=True), seen(End.DIFFERED, raised=ASKED), OTHER_RUN),
        # the rank came past the end moment
        (recorded(REQUEST, goes_on=True), seen(End.NEXT_CALL), SAME),
        (recorded(REQUEST), seen(End.NEXT_CALL), SAME),
        (recorded(REQUEST, exit_code=0), seen(End.NEXT_CALL), OTHER_RUN),
        (recorded(REQUEST, exit_code=0, answered=False), seen(End.NEXT_CALL), OPEN),
        (recorded(REQUEST, goes_on=True), seen(End.NEXT_CALL, raised=ERROR), OTHER_RUN),
        (recorded(REQUEST), seen(End.NEXT_CALL, raised=ERROR), OPEN),
        (recorded(RAISED, raised=ERROR), seen(End.NEXT_CALL), OTHER_RUN),
        (recorded(RAISED, raised=ERROR, answered=False), seen(End.NEXT_CALL), OPEN),
        (recorded(RAISED, raised=ERROR, goes_on=True), seen(End.NEXT_CALL, raised=ERROR), SAME),
        (recorded(RAISED, raised=ERROR), seen(End.NEXT_CALL, raised=OTHER), OTHER_RUN),
        (recorded(RAISED, also_raised=(ERROR,)), seen(End.NEXT_CALL), OPEN),
        (recorded(RAISED, also_raised=(ERROR,)), seen(End.NEXT_CALL, also_raised=(ERROR,)), SAME),
        (recorded(RAISED, also_raised=(ERROR, OTHER)), seen(End.NEXT_CALL, also_raised=(OTHER, ERROR)), SAME),
        (recorded(RAISED, also_raised=(ERROR, ERROR)), seen(End.NEXT_CALL, also_raised=(ERROR,)), OPEN),
        (recorded(REQUEST, goes_on=True), seen(End.NEXT_CALL, also_raised=(ERROR,)), OPEN),
        (recorded(REQUEST, goes_on=True, raised_later=(ERROR,)), seen(End.NEXT_CALL, also_raised=(ERROR,)), SAME),
        (recorded(RAISED, raised=ERROR), seen(End.NEXT_CALL, raised=ERROR, also_raised=(OTHER,)), OPEN),
        # raised close to the start moment, where nobody knows on which side
        (recorded(REQUEST, goes_on=True, raised_at_start=(ERROR,)), seen(End.NEXT_CALL), SAME),
        (recorded(REQUEST, goes_on=True, raised_at_start=(ERROR,)), seen(End.NEXT_CALL, raised=ERROR), SAME),
        (recorded(REQUEST, goes_on=True, raised_at_start=(ERROR,)), seen(End.NEXT_CALL, raised=OTHER), OTHER_RUN),
        (recorded(REQUEST, goes_on=True, raised_at_start=(ERROR,)), seen(End.UNTIL, also_raised=(ERROR,)), SAME),
        (recorded(REQUEST, raised_at_start=(ERROR,)), seen(End.UNTIL, also_raised=(ERROR, ERROR)), OPEN),
        (recorded(RAISED, raised=OTHER, raised_at_start=(ERROR,)), seen(End.NEXT_CALL, raised=ERROR), OTHER_RUN),
        (recorded(LOST, died_with=139, raised_at_start=(ERROR,)), seen(End.DIED, exit_code=139, raised=ERROR), SAME),
        (recorded(REQUEST, exit_code=0), seen(End.FINISHED, exit_code=0, also_raised=(ERROR,)), OPEN),
        (recorded(LOST), seen(End.DIED, exit_code=137, also_raised=(ERROR,)), OPEN),
        (recorded(HANG), seen(End.SILENT, also_raised=(ERROR,)), OPEN),
        (recorded(HANG), seen(End.SILENT, raised=ERROR), OPEN),
        (recorded(HANG, raised=ERROR), seen(End.SILENT), OPEN),
        (recorded(REQUEST), seen(End.UNTIL, raised=ERROR), OPEN),
        (recorded(REQUEST), seen(End.UNTIL, also_raised=(ERROR,)), OPEN),
        (recorded(REQUEST, also_raised=(ERROR,)), seen(End.UNTIL), SAME),  # it may come after the stop
        (recorded(LOST), seen(End.NEXT_CALL), OPEN),  # its death did not happen again
        (recorded(LOST, answered=False), seen(End.NEXT_CALL), OPEN),
        (recorded(LOST), seen(End.SILENT), OPEN),
        (recorded(LOST), seen(End.QUIET), OPEN),
        (recorded(LOST, answered=False), seen(End.SILENT), OPEN),
        (recorded(LOST, goes_on=True), seen(End.SILENT), OPEN),
        (recorded(LOST, goes_on=True), seen(End.NEXT_CALL), OPEN),
        (recorded(LOST), seen(End.UNTIL), SAME),  # stopped before it
        (recorded(HANG, answered=False), seen(End.NEXT_CALL), SAME),
        (recorded(HANG), seen(End.NEXT_CALL), OPEN),
        (recorded(HANG, goes_on=True), seen(End.NEXT_CALL), SAME),
        # the program ended by itself
        (recorded(REQUEST, exit_code=0), seen(End.FINISHED, exit_code=0), SAME),
        (recorded(REQUEST, exit_code=3), seen(End.FINISHED, exit_code=3), SAME),
        (recorded(REQUEST, exit_code=3), seen(End.FINISHED, exit_code=0), OTHER_RUN),
        (recorded(REQUEST, exit_code=0), seen(End.FINISHED, exit_code=1, raised=ERROR), OTHER_RUN),
        (recorded(REQUEST, goes_on=True), seen(End.FINISHED, exit_code=0), OTHER_RUN),
        (recorded(REQUEST, goes_on=True, answered=False), seen(End.FINISHED, exit_code=0), OPEN),
        (recorded(REQUEST), seen(End.FINISHED, exit_code=0), SAME),
        (recorded(REQUEST), seen(End.FINISHED, exit_code=3), OPEN),
        (recorded(REQUEST), seen(End.FINISHED, exit_code=0, missing=1), OTHER_RUN),
        (recorded(RAISED, raised=ERROR), seen(End.FINISHED, exit_code=1, raised=ERROR), SAME),
        (recorded(RAISED, raised=ERROR, exit_code=1), seen(End.FINISHED, exit_code=1, raised=ERROR), SAME),
        (recorded(RAISED, raised=ERROR, exit_code=1), seen(End.FINISHED, exit_code=2, raised=ERROR), OTHER_RUN),
        (recorded(RAISED, raised=ERROR), seen(End.FINISHED, exit_code=1, raised=OTHER), OTHER_RUN),
        (recorded(RAISED, raised=ERROR), seen(End.FINISHED, exit_code=0), OTHER_RUN),
        (recorded(LOST), seen(End.FINISHED, exit_code=0), OPEN),
        (recorded(LOST), seen(End.FINISHED, exit_code=1, raised=ERROR), OPEN),
        (recorded(LOST, answered=False), seen(End.FINISHED, exit_code=0), OPEN),
        (recorded(LOST, exit_code=0), seen(End.FINISHED, exit_code=0), OPEN),
        (recorded(HANG), seen(End.FINISHED, exit_code=0), OPEN),
        (recorded(HANG, answered=False), seen(End.FINISHED, exit_code=0), SAME),
        # the process died without a word
        (recorded(LOST), seen(End.DIED, exit_code=137), SAME),
        (recorded(OOM), seen(End.DIED, exit_code=137), SAME),
        (recorded(LOST, died_with=137), seen(End.DIED, exit_code=137), SAME),
        (recorded(LOST, died_with=137), seen(End.DIED, exit_code=-9), SAME),
        (recorded(LOST, died_with=139), seen(End.DIED, exit_code=134), OTHER_RUN),
        (recorded(LOST, died_with=3), seen(End.DIED, exit_code=4), OTHER_RUN),
        (recorded(LOST, died_with=139, answered=False), seen(End.DIED, exit_code=134), OPEN),
        (recorded(LOST, died_with=137), seen(End.NEXT_CALL), OPEN),  # killed from outside
        (recorded(LOST, died_with=143), seen(End.NEXT_CALL), OPEN),
        (recorded(LOST, died_with=139), seen(End.NEXT_CALL), OPEN),
        (recorded(LOST, died_with=3), seen(End.NEXT_CALL), OPEN),
        (recorded(LOST), seen(End.DIED, exit_code=137, missing=1), GONE),
        (recorded(LOST, goes_on=True), seen(End.DIED, exit_code=137), GONE),
        (recorded(LOST, exit_code=0), seen(End.DIED, exit_code=137), GONE),
        (recorded(OOM, raised=ERROR), seen(End.DIED, exit_code=137), GONE),
        (recorded(RAISED, raised=ERROR), seen(End.DIED, exit_code=134, raised=ERROR), SAME),
        (recorded(RAISED, raised=ERROR, exit_code=1), seen(End.DIED, exit_code=134, raised=ERROR), GONE),
        (recorded(REQUEST), seen(End.DIED, exit_code=137), GONE),
        (recorded(RAISED, also_raised=(ERROR,)), seen(End.DIED, exit_code=7, also_raised=(ERROR,)), OPEN),
        (recorded(RAISED, also_raised=(ERROR,), exit_code=0), seen(End.DIED, exit_code=7), GONE),
        (recorded(LOST, required=0), seen(End.DIED, compared=0, exit_code=137), OPEN),
        # it came to nothing more, was stopped, never ran
        (recorded(HANG), seen(End.SILENT), SAME),
        (recorded(HANG, answered=False), seen(End.SILENT), OPEN),  # what it waited for was synthesized
        (recorded(REQUEST), seen(End.SILENT), OPEN),
        (recorded(HANG, goes_on=True), seen(End.SILENT), OPEN),
        (recorded(REQUEST), seen(End.UNTIL), SAME),
        (recorded(REQUEST, required=0), seen(End.UNTIL, compared=0), OPEN),
        (recorded(HANG, required=0, answered=False), seen(End.NEXT_CALL, compared=0), OPEN),
        (recorded(HANG, required=0), seen(End.NOT_RUN, compared=0), OPEN),
    ],
)  # fmt: skip
def test_how_it_may_end(record: Recorded, replay: Seen, outcome: Outcome) -> None:
    assert decide(record, replay).outcome is outcome


MASKED = "ValueError: no <redacted> there"


@pytest.mark.parametrize(
    ("places", "fingerprinted", "outcome"),
    [
        (("train.py:7 in main", "train.py:7 in main"), FEW, SAME),
        (("train.py:7 in main", "train.py:9 in main"), FEW, OPEN),
        (("train.py:7 in main", ""), FEW, SAME),
        (("", ""), FEW, SAME),
        (("", ""), 0, OPEN),
        (("train.py:7 in main", "train.py:7 in main"), 0, OPEN),  # its type is no more evidence than its calls
    ],
)
@pytest.mark.parametrize("end", [End.FINISHED, End.DIED])
def test_an_exception_whose_text_is_redacted(
    places: tuple[str, str], fingerprinted: int, outcome: Outcome, end: End
) -> None:
    there, here = places
    replay = seen(end, fingerprinted=fingerprinted, raised=MASKED, raised_at=here, exit_code=1)
    found = decide(recorded(RAISED, raised=MASKED, raised_at=there), replay)
    assert found.outcome is outcome
    assert outcome is SAME or "redacted" in found.why
    whole = decide(recorded(RAISED, raised=ERROR, raised_at=there), replace(replay, raised=ERROR))
    assert whole.outcome is SAME


@pytest.mark.parametrize(
    ("died_with", "how"),
    [
        (None, "the recording does not contain the cause"),
        (3, "exit code 3"),
        (-11, "SIGSEGV (exit code -11)"),
        (137, "SIGKILL (exit code 137), a signal that usually comes from outside the program"),
    ],
)
@pytest.mark.parametrize(
    ("end", "then"),
    [(End.NEXT_CALL, "the rank issued a further collective"), (End.FINISHED, "the program ended with exit code 0")],
)
def test_a_death_that_did_not_happen_again_is_named(died_with: int | None, how: str, end: End, then: str) -> None:
    """Also what is identical up to there: of a kill from outside no replay can show more."""
    assert decide(recorded(LOST, died_with=died_with), seen(end, exit_code=0)).why == (
        "the incident did not happen again: the replay is identical up to the end moment, then "
        f"{then}; the recorded rank died: {how}"
    )
    only_calls = decide(recorded(LOST, died_with=died_with), seen(end, exit_code=0, fingerprinted=0))
    assert "identical" not in only_calls.why


RECORDS = [
    Recorded(
        incident=kind, required=required, goes_on=goes_on, answered=answered, exit_code=code, raised=raised,
        also_raised=also, died_with=died,
    )
    for kind, required, goes_on, answered, code, raised, also, died in product(
        IncidentKind, (0, FEW), (False, True), (False, True), (None, 3), ("", ERROR), ((), (OTHER,)), (None, 139)
    )
]  # fmt: skip
REPLAYS = [
    Seen(
        end=end, compared=compared, missing=missing, lacking=lacking, exit_code=code, raised=raised,
        also_raised=also, parameters_differ_at=differ,
    )
    for end, compared, missing, lacking, code, raised, also, differ in product(
        End, (0, 1, FEW), (0, 2), (0, 1), (0, 3), ("", ERROR), ((), (OTHER,)), ("", "2.0")
    )
]  # fmt: skip


@pytest.mark.parametrize("kind", IncidentKind)
def test_identical_rests_on_everything_that_it_promises(kind: IncidentKind) -> None:
    """Over all combinations of what may be recorded and seen."""
    for record, replay in product((r for r in RECORDS if r.incident is kind), REPLAYS):
        found = decide(record, replay)
        assert found.why or found.outcome is SAME or replay.end is End.DIFFERED, (record, replay)
        if found.outcome is not SAME:
            continue
        assert replay.end not in (End.DIFFERED, End.NOT_RUN) and not replay.parameters_differ_at
        assert replay.compared >= max(record.required, 1)
        assert (replay.missing, replay.lacking) == (0, 0)
        if replay.end is not End.UNTIL and record.raised:
            assert record.raised in (replay.raised, *replay.also_raised)
        assert {replay.raised, *replay.also_raised} <= {"", record.raised, *record.also_raised}
        if replay.end is End.SILENT:
            assert record.incident is HANG and record.answered
        if record.incident is LOST:
            assert replay.end in (End.DIED, End.UNTIL)
        if replay.end is End.DIED:
            assert not record.goes_on and record.exit_code is None
            assert record.died_with in (None, replay.exit_code)
        if replay.end is End.FINISHED and record.exit_code is not None and not record.goes_on:
            assert replay.exit_code == record.exit_code


@pytest.mark.parametrize(
    ("text", "other", "outcome"),
    [
        ("KeyError: <Batch object at 0x7f8760aa>", "KeyError: <Batch object at 0x7fa00dcf8370>", SAME),
        ("KeyError: <Batch object at 0x7f8760aa>", "KeyError: <Row object at 0x7fa00dcf8370>", OTHER_RUN),
        ("ValueError: mask 0xdeadbeef", "ValueError: mask 0xdeadbeee", OTHER_RUN),
        ("OSError: password *** of <A at 0x7f8760aa>", "OSError: password hunter2 of <A at 0x7f8760bb>", SAME),
    ],
)
def test_two_processes_have_no_address_of_an_object_in_common(text: str, other: str, outcome: Outcome) -> None:
    there = recorded(RAISED, raised=text.replace("***", REDACTED))
    assert decide(there, as_recorded(there, seen(End.FINISHED, raised=other, exit_code=1))).outcome is outcome
