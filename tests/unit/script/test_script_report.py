"""What is made of findings: JUnit as CI servers read it, exit codes, and what an edited program's replay says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from capsules import MANIFEST, make_capsule

from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.cli.options.replay_chosen import Chosen
from prismdbg.cli.terminal import replay_script
from prismdbg.cli.terminal.replay_script import exit_code, look_command, show
from prismdbg.errors import UsageError
from prismdbg.jobs.replay.bounded_messages import Received
from prismdbg.jobs.replay.compare import Verdict
from prismdbg.jobs.replay.verdict import End, Recorded
from prismdbg.jobs.replay.verdict import Outcome as Compared
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.script.findings import Ending, Finding, Findings, FoundPlace, Outcome, RecordedValue
from prismdbg.script.fix import FixVerdict, Judgement, Run, judge_fix
from prismdbg.script.junit import junit, write_junit
from prismdbg.script.language import BackTo
from prismdbg.script.nonfinite_seen import NonfiniteSeen
from prismdbg.script.scripted import Listener, Scripted, _is_as_hoped, _Telling
from prismdbg.script.value_line import truth, value_line
from prismdbg.session.answers import Originated
from prismdbg.session.notices import (
    AllCompared,
    Departed,
    Hit,
    Lost,
    Notice,
    ProgramRaised,
    Progress,
    Skipped,
    Synthesized,
)

NAN = Incident(kind=IncidentKind.NAN, text="rank 2 sends a NaN", moment=Moment(19, 1))
RAISED = Incident(kind=IncidentKind.EXCEPTION, text="ValueError: no such word", moment=Moment(19, 1))
ASKED = Incident(kind=IncidentKind.REQUEST, text="captured on request")
END = Moment(19, 1)
RECORDED = tuple(Moment(step, 1) for step in range(20))


def finding(outcome: Outcome = Outcome.HELD, **more: Any) -> Finding:
    fields = {"kind": "expect", "title": "the loss", "place": "checks.yaml:7:5", "text": "finite(out)"}
    return Finding(**{**fields, "outcome": outcome, **more})


def found(*checks: Finding, ending: Ending = Ending.COMPLETE, **more: Any) -> Findings:
    return Findings(checks=list(checks), ending=ending, reached=Moment(19, 2), **more)


def parsed(findings: Findings, fix: FixVerdict | None = None) -> ElementTree.Element:
    data = junit(
        findings, suite="capsule", elapsed_s=1.5, look=lambda at: look_command(Path("my capsule"), at), fix=fix
    )
    suite = ElementTree.fromstring(data).find("testsuite")
    assert suite is not None
    return suite


@pytest.mark.parametrize("as_json", [False, True])
def test_what_the_rank_printed_is_shown_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    """As of a replay without a script."""
    capsule = make_capsule(tmp_path / "capsule", MANIFEST).path

    def ran(_request: object, _script: object, result: Scripted, **_: object) -> None:
        result.output = "loss 1.5\n"

    monkeypatch.setattr(replay_script, "run_scripted", ran)
    replay_script.replay_scripted(
        Chosen(
            capsule=capsule, runtime="", until=None, script=None, lines=None, source=None, junit=None, strict=False,
            allow_writes=False, bound_s=60.0, bisect=False, as_json=as_json,
        )
    )  # fmt: skip
    kept, said = tmp_path / "capsule.output", capsys.readouterr()
    assert kept.read_text() == "loss 1.5\n"
    if as_json:
        assert json.loads(said.out)["output_kept_at"] == str(kept)
    else:
        assert "  | loss 1.5" in said.err and f"complete output: {kept}" in said.err


def test_one_case_for_each_expectation() -> None:
    suite = parsed(found(finding(), finding(Outcome.FAILED), finding(Outcome.UNDECIDED, title="late")))
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "time")} == {
        "tests": "3", "failures": "1", "errors": "1", "time": "1.500",
    }  # fmt: skip
    assert [case.get("name") for case in suite.iter("testcase")] == ["the loss", "the loss", "late"]
    assert {case.get("file") for case in suite.iter("testcase")} == {"checks.yaml"}


def test_a_failing_case_has_its_moment_its_values_and_a_command() -> None:
    failed = finding(Outcome.FAILED, moment=Moment(12, 345), message="it is False", values={"out": "[nan (float32[])]"})
    failure = parsed(found(failed)).find(".//failure")
    assert failure is not None and failure.text is not None
    assert failure.get("message") == "it is False at 12.345"
    for part in ("checks.yaml:7:5: finite(out)", "out = [nan (float32[])]", "prismdbg debug 'my capsule' --at 12.345"):
        assert part in failure.text


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.HELD])
def test_how_often_it_was_checked_is_not_taken_for_how_often_it_failed(
    outcome: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    show(Scripted(findings=found(finding(outcome, hits=12, moment=Moment(11, 1)))), Path("capsule"))
    assert "  the loss at 11.1 (checked 12 times)\n" in capsys.readouterr().out


def test_a_case_that_was_not_decided_says_why() -> None:
    error = parsed(found(finding(Outcome.UNDECIDED), ending=Ending.TIMEOUT, cut_short="it was not over in time")).find(
        ".//error"
    )
    assert error is not None
    assert (error.get("type"), error.get("message")) == ("out of time", "not decided: it was not over in time")


def test_an_inconclusive_replay_is_an_error_however_its_checks_went() -> None:
    suite = parsed(found(finding(), ending=Ending.INCONCLUSIVE, cut_short="no collective was compared"))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "0", "1")
    (error,) = suite.findall("testcase/error")
    assert error.get("message") == "inconclusive: no collective was compared"


@pytest.mark.parametrize("ending", [each for each in Ending if each is not Ending.COMPLETE])
def test_a_replay_that_did_not_end_as_recorded_is_an_error_however_its_checks_went(ending: Ending) -> None:
    suite = parsed(found(finding(), ending=ending))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "0", "1")
    (error,) = suite.findall("testcase/error")
    assert (error.get("type"), error.get("message")) == (str(ending), str(ending))


@pytest.mark.parametrize(
    ("judgement", "element"),
    [
        (Judgement.GONE, None),
        (Judgement.NO_INCIDENT, None),  # the checks decide alone
        (Judgement.RECURS, "failure"),
        (Judgement.OTHER, "failure"),
        (Judgement.UNKNOWN, "error"),
        (Judgement.NOT_REACHED, "error"),
        (Judgement.UNANSWERED, "error"),
        (Judgement.UNSEEN, "error"),
    ],
)
@pytest.mark.parametrize("ending", [Ending.COMPLETE, Ending.LOST])
def test_what_is_judged_of_a_fix_is_a_case(ending: Ending, judgement: Judgement, element: str | None) -> None:
    suite = parsed(found(finding(), ending=ending), replace(verdict(judgement), text="why"))
    counts = {name: str(int(name == f"{element}s")) for name in ("failures", "errors")}
    assert {"tests": "2", **counts} == {name: suite.get(name) for name in ("tests", "failures", "errors")}
    case = suite.findall("testcase")[-1]
    assert case.get("name") == "the incident does not happen again"
    assert [(child.tag, child.get("type"), child.get("message")) for child in case] == (
        [(element, str(judgement), "why")] if element else []
    )


def test_places_gone_back_to_are_properties() -> None:
    answer = Originated(
        asked_at=Moment(2), moment=Moment(1, 0, 9), op="aten::select.int", born=False, what="NaN", seen_at=Moment(1, 1),
        frames=(Frame("/job/train.py", 28, "item"),), exact=True, stop=None,
    )  # fmt: skip
    places = [FoundPlace(name="born", to=BackTo.ORIGIN, answer=answer)]
    places += [FoundPlace(name="no", to=BackTo.WRITE, answer=None, why="x was not written")]
    properties = {p.get("name"): p.get("value") for p in parsed(found(finding(), places=places)).iter("property")}
    assert properties["back_to.born"] == "1.0.9 aten::select.int train.py:28"
    assert properties["back_to.no"] == "x was not written"


def test_recorded_values_are_properties() -> None:
    record = RecordedValue(name="loss", moment=Moment(1, 2), text="3.5", value=None, assumed=False)
    properties = {p.get("name"): p.get("value") for p in parsed(found(finding(), records=[record])).iter("property")}
    assert properties == {"ending": "complete", "reached": "19.2", "record.loss@1.2": "3.5"}


def test_what_a_rank_says_cannot_break_the_xml() -> None:
    evil = finding(
        Outcome.FAILED, title="<a> & \x00\ud800", message="]]></failure>\x1b[2J\x9b31m\u202e", values={"x": '"&lt;'}
    )
    failure = parsed(found(evil)).find(".//failure")
    assert failure is not None and failure.text is not None
    assert "]]></failure>�[2J�31m�" in failure.text and 'x = "&lt;' in failure.text


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out.xml"
    target.write_text("old")
    write_junit(target, b"new")
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"new", 0o644)
    assert [path.name for path in tmp_path.iterdir()] == ["out.xml"]
    with pytest.raises(UsageError, match="cannot be written"):
        write_junit(tmp_path / "none" / "out.xml", b"new")


def verdict(judgement: Judgement) -> FixVerdict:
    return FixVerdict(judgement=judgement, text="", left=None, affected=None, on_record=True)


LOST = Verdict(outcome=Compared.RANK_LOST)


@pytest.mark.parametrize(
    ("result", "edited", "codes"),
    [
        (Scripted(findings=found(finding())), False, (0, 0)),
        (Scripted(findings=found(finding(Outcome.UNDECIDED), cut_short="it ended")), False, (7, 125)),
        (Scripted(findings=found(finding(Outcome.FAILED, hits=1))), False, (1, 1)),
        (Scripted(findings=found(finding(Outcome.FAILED, hits=1), ending=Ending.DIVERGED)), False, (1, 1)),
        (Scripted(findings=found(ending=Ending.DIVERGED)), False, (5, 5)),
        (Scripted(findings=found(ending=Ending.TIMEOUT)), False, (124, 125)),
        (Scripted(findings=found(ending=Ending.LOST), verdict=LOST), False, (6, 125)),
        (Scripted(findings=found(ending=Ending.LOST)), False, (6, 125)),
        (Scripted(findings=found(ending=Ending.INCONCLUSIVE), verdict=Verdict()), False, (7, 125)),
        (Scripted(findings=found(finding(Outcome.FAILED, hits=1), ending=Ending.INCONCLUSIVE)), False, (1, 1)),
        (Scripted(findings=found(), fix=verdict(Judgement.GONE)), True, (0, 0)),
        (Scripted(findings=found(), fix=verdict(Judgement.RECURS)), True, (1, 1)),
        (Scripted(findings=found(), fix=verdict(Judgement.OTHER)), True, (1, 125)),
        (Scripted(findings=found(), fix=verdict(Judgement.UNKNOWN)), True, (7, 125)),
        (Scripted(findings=found(ending=Ending.LOST), fix=verdict(Judgement.RECURS)), True, (1, 1)),
        (Scripted(findings=found(ending=Ending.LOST), fix=verdict(Judgement.OTHER)), True, (1, 125)),
        (Scripted(findings=found(ending=Ending.LOST), fix=verdict(Judgement.UNKNOWN)), True, (7, 125)),
        (Scripted(findings=found(ending=Ending.LOST), verdict=Verdict(outcome=Compared.IDENTICAL)), False, (6, 125)),
        (Scripted(findings=found(finding(Outcome.FAILED)), fix=verdict(Judgement.OTHER)), True, (1, 125)),
        # of an edited program the checks alone do not decide
        (Scripted(findings=found(finding()), fix=verdict(Judgement.GONE)), True, (0, 0)),
        (Scripted(findings=found(finding()), fix=verdict(Judgement.RECURS)), True, (1, 1)),
        (Scripted(findings=found(finding()), fix=verdict(Judgement.OTHER)), True, (1, 125)),
        (Scripted(findings=found(finding()), fix=verdict(Judgement.UNKNOWN)), True, (7, 125)),
        (Scripted(findings=found(finding()), fix=verdict(Judgement.NOT_REACHED)), True, (7, 125)),
        (Scripted(findings=found(finding()), fix=verdict(Judgement.UNANSWERED)), True, (7, 0)),  # the checks decide
        (Scripted(findings=found(finding(Outcome.UNDECIDED)), fix=verdict(Judgement.UNANSWERED)), True, (7, 125)),
        (Scripted(findings=found(finding(Outcome.FAILED)), fix=verdict(Judgement.UNANSWERED)), True, (1, 1)),
        (Scripted(findings=found(), fix=verdict(Judgement.UNANSWERED)), True, (7, 125)),  # there are none
        (Scripted(findings=found(finding()), fix=verdict(Judgement.UNSEEN)), True, (7, 0)),
        (Scripted(findings=found(finding(Outcome.FAILED)), fix=verdict(Judgement.UNSEEN)), True, (1, 1)),
        (Scripted(findings=found(), fix=verdict(Judgement.UNSEEN)), True, (7, 125)),
        (Scripted(findings=found(finding()), fix=verdict(Judgement.NO_INCIDENT)), True, (0, 0)),
        (Scripted(findings=found(finding(Outcome.UNDECIDED)), fix=verdict(Judgement.NO_INCIDENT)), True, (7, 125)),
        (Scripted(findings=found(finding(Outcome.FAILED)), fix=verdict(Judgement.NO_INCIDENT)), True, (1, 1)),
        (Scripted(findings=found(), fix=verdict(Judgement.NO_INCIDENT)), True, (7, 125)),
        # a rank that is silent after its failed check
        (
            Scripted(
                findings=found(finding(Outcome.FAILED, hits=1), ending=Ending.TIMEOUT), fix=verdict(Judgement.UNKNOWN)
            ),
            True,
            (1, 1),
        ),
        (Scripted(findings=found(finding(), ending=Ending.TIMEOUT), fix=verdict(Judgement.UNKNOWN)), True, (124, 125)),
        (Scripted(findings=found(finding(Outcome.UNDECIDED)), fix=verdict(Judgement.GONE)), True, (7, 125)),
        (Scripted(findings=found(finding()), fix=verdict(Judgement.OTHER)), False, (0, 125)),  # with other peers only
    ],
)
def test_exit_codes(result: Scripted, edited: bool, codes: tuple[int, int]) -> None:
    assert (
        exit_code(result, edited=edited, bisect=False),
        exit_code(result, edited=edited, bisect=True),
    ) == codes


def test_a_death_may_be_the_doing_of_a_limit_of_the_replay() -> None:
    died = Verdict(outcome=Compared.IDENTICAL, end=End.DIED)
    assert not _is_as_hoped(Scripted(findings=found(), verdict=died))
    assert _is_as_hoped(Scripted(findings=found(), verdict=replace(died, end=End.FINISHED)))


def departed(at: str, sent_nonfinite: int = 0) -> Departed:
    story = {
        "expected": {"sent_nonfinite": sent_nonfinite},
        "actual": {"profiling_name": "all_reduce"},
        "differences": [{"structural": False, "field": "sent", "expected": "1", "actual": "2"}],
    }
    return Departed(moment=Moment.parse(at), story=story)


def fixed(
    incident: Incident = NAN,
    *,
    answered: bool = True,
    was_skipped: bool = False,
    code: int | None = None,
    recorded: str = "",
    died_with: int | None = None,
    **seen: Any,
) -> FixVerdict:
    run = Run(**{"ending": Ending.COMPLETE, "reached": Moment(19, 2), **seen})
    known = Recorded(
        incident=incident.kind,
        required=len(RECORDED),
        answered=answered,
        was_skipped=was_skipped,
        exit_code=code,
        raised=recorded,
        died_with=died_with,
    )
    return judge_fix(run, incident, END, RECORDED, known)


def test_a_fix_at_the_incident_rests_on_the_record() -> None:
    said = fixed(departed=departed("19.1", 1), affected=Moment(19, 1))
    assert (said.judgement, said.on_record) == (Judgement.GONE, True)
    assert said.text == (
        "identical up to 18.1; from 19.1 on it sends other data (all_reduce sends different values from the recorded "
        "ones); the recorded NaN or Inf does not occur there, as expected of a fix; continued with synthesized peers "
        "to 19.2: no exception, no NaN; what it sent up to 19.1 depends only on recorded data"
    )


def test_a_program_that_leaves_earlier_is_judged_on_assumed_peers_and_that_is_said() -> None:
    said = fixed(departed=departed("3.1"), affected=Moment(3, 1))
    assert (said.judgement, said.on_record) == (Judgement.GONE, False)
    assert said.text.endswith(
        "up to 3.1 depends only on recorded data; what it sent at 19.1 depends on synthesized data"
    )


def test_a_run_that_ends_before_the_incident_is_judged_as_far_as_it_went() -> None:
    said = fixed(departed=departed("3.1"), affected=Moment(3, 1), reached=Moment(3, 1))
    assert said.on_record and "synthesized ones" not in said.text


def test_no_more_is_claimed_of_a_run_than_it_came_to() -> None:
    lost: Any = {"ending": Ending.LOST, "exit_code": 139, "reached": Moment(3, 3)}
    said = fixed(departed=departed("3.1"), **lost)
    assert said.text.endswith("SIGSEGV (exit code 139); what it sent up to 3.3 depends only on recorded data")
    said = fixed(departed=departed("3.1"), affected=Moment(3, 1), **lost)
    assert "what it sent up to 3.1 depends only on recorded data; what it sent at 3.3 depends on" in said.text


def test_the_incident_again() -> None:
    said = fixed(first_nan=Moment(19, 1))
    assert (said.judgement, said.on_record) == (Judgement.RECURS, True)
    assert said.text == ("identical up to 19.1; it continued to 19.2: a NaN or Inf at 19.1, as in the recorded run")


def test_a_program_that_does_not_come_to_a_collective() -> None:
    raised = ProgramRaised(moment=Moment(0), kind="SyntaxError", text="invalid syntax", traceback=())
    said = fixed(reached=Moment(0), raised=raised)
    assert (
        said.text
        == "the program issued no collective; it continued to 0.0: the program raised SyntaxError: invalid syntax"
    )


@pytest.mark.parametrize(
    ("incident", "seen", "judgement"),
    [
        (RAISED, {"raised": ("ValueError", "other words")}, Judgement.RECURS),
        (RAISED, {"raised": ("ValueError", "other words"), "ending": Ending.LOST, "exit_code": 134}, Judgement.RECURS),
        (RAISED, {"raised": ("KeyError", "no such word")}, Judgement.OTHER),
        (RAISED, {"first_nan": Moment(3, 1)}, Judgement.OTHER),
        (RAISED, {}, Judgement.GONE),
        (NAN, {"raised": ("ImportError", "scores")}, Judgement.OTHER),
        (NAN, {"ending": Ending.LOST, "exit_code": 139}, Judgement.OTHER),
        (NAN, {"ending": Ending.LOST, "exit_code": 0}, Judgement.UNKNOWN),
        (NAN, {"ending": Ending.TIMEOUT}, Judgement.UNKNOWN),
        (Incident(kind=IncidentKind.LOST, text=""), {}, Judgement.UNKNOWN),  # it died of nobody knows what
        (Incident(kind=IncidentKind.LOST, text=""), {"died_with": 137}, Judgement.UNKNOWN),  # killed from outside
        (Incident(kind=IncidentKind.LOST, text=""), {"died_with": 139}, Judgement.GONE),
        (Incident(kind=IncidentKind.LOST, text=""), {"died_with": 139, "reached": END}, Judgement.UNKNOWN),
        (Incident(kind=IncidentKind.LOST, text=""), {"died_with": 139, "reached": END, "exit_code": 0}, Judgement.GONE),
        (Incident(kind=IncidentKind.HANG, text=""), {}, Judgement.GONE),
        (Incident(kind=IncidentKind.HANG, text=""), {"reached": END}, Judgement.UNKNOWN),
        (Incident(kind=IncidentKind.HANG, text=""), {"reached": END, "hangs": True}, Judgement.UNKNOWN),
        (Incident(kind=IncidentKind.HANG, text=""), {"answered": False}, Judgement.UNANSWERED),
        (NAN, {"reached": Moment(3, 1)}, Judgement.UNKNOWN),  # it ends before the place of the incident
        (NAN, {"reached": Moment(3, 1), "run_to": Moment(3, 1)}, Judgement.NOT_REACHED),
        (NAN, {"reached": Moment(2, 1), "run_to": Moment(3, 1)}, Judgement.UNKNOWN),
        (RAISED, {"reached": END, "run_to": END}, Judgement.NOT_REACHED),  # what raised comes behind that collective
        (RAISED, {"reached": Moment(19, 2), "run_to": END}, Judgement.GONE),
        (NAN, {"reached": Moment(3, 1), "run_to": Moment(3, 1), "exit_code": 2}, Judgement.OTHER),
        (RAISED, {"exit_code": 3}, Judgement.OTHER),
        (NAN, {"exit_code": 3, "code": 3}, Judgement.GONE),  # as the recorded program
        (NAN, {"exit_code": 3, "code": 1}, Judgement.OTHER),
        # caught, and then sys.exit(1): what ended with an exception has that code, too
        (RAISED, {"exit_code": 1, "code": 1}, Judgement.OTHER),
        (Incident(kind=IncidentKind.OUT_OF_MEMORY, text=""), {"exit_code": 1, "code": 1}, Judgement.OTHER),
        (NAN, {"exit_code": 1, "code": 1, "recorded": "ValueError: NaN"}, Judgement.OTHER),
        (NAN, {"exit_code": 0, "code": 1, "recorded": "ValueError: NaN"}, Judgement.GONE),
        (ASKED, {"first_nan": Moment(3, 1)}, Judgement.OTHER),
        (ASKED, {"exit_code": 3}, Judgement.OTHER),
        (ASKED, {}, Judgement.NO_INCIDENT),
        (ASKED, {"reached": Moment(3, 1)}, Judgement.UNKNOWN),
        (ASKED, {"reached": Moment(3, 1), "run_to": Moment(3, 1)}, Judgement.NO_INCIDENT),
        (Incident(kind=IncidentKind.SIGNAL, text=""), {}, Judgement.NO_INCIDENT),
        (Incident(kind=IncidentKind.SLOW, text=""), {}, Judgement.UNSEEN),
        (Incident(kind=IncidentKind.SLOW, text=""), {"raised": ("KeyError", "x")}, Judgement.OTHER),
    ],
)
def test_what_counts_as_the_incident(incident: Incident, seen: dict[str, Any], judgement: Judgement) -> None:
    if "raised" in seen:
        kind, text = seen["raised"]
        seen = {**seen, "raised": ProgramRaised(moment=END, kind=kind, text=text, traceback=())}
    assert fixed(incident, **seen).judgement is judgement


def hit(at: str) -> Hit:
    return Hit(moment=Moment.parse(at), stop=1, collective={})


def skipped(step: int, in_a_row: int = 1) -> Skipped:
    return Skipped(moment=Moment(step, 9), begun=step + 1, in_a_row=in_a_row)


def overflows(steps: Iterable[int]) -> Iterator[Notice]:
    """All in a row."""
    for number, step in enumerate(steps, 1):
        yield from (hit(f"{step}.1"), skipped(step, number))


def seen_of(
    told: Sequence[Notice],
    incident: Incident = NAN,
    reached: str = "19.2",
    *,
    recorded: Sequence[str] = (),
    was_skipped: bool = False,
) -> FixVerdict:
    """`recorded`: where the recorded rank had NaN or Inf. was_skipped: its scaler skipped the step of the incident."""
    nonfinite = NonfiniteSeen.of(incident, END, [Moment.parse(at) for at in recorded])
    listener = Listener(Received(Path()), nan_stop=1, nonfinite=nonfinite)
    for notice in told:
        listener(notice)
    come_to = Moment.parse(reached)
    return fixed(
        incident,
        was_skipped=was_skipped,
        departed=listener.departed,
        reached=come_to,
        first_nan=listener.nonfinite.first,
        has_nan_where_it_left=nonfinite.is_where_it_left,
        lasting_overflow=listener.nonfinite.lasting(come_to),
        skipped_too_many=nonfinite.is_too_many,
        has_other_nan=listener.nonfinite.has_passed,
    )


@pytest.mark.parametrize(
    ("incident", "told", "judgement"),
    [
        # recorded, and not the incident: the gradient scaler skipped it
        (NAN, [hit("0.1"), departed("19.1", 1)], Judgement.GONE),
        (RAISED, [hit("0.1"), departed("19.1")], Judgement.GONE),
        (RAISED, [hit("19.1")], Judgement.GONE),
        (ASKED, [hit("0.1")], Judgement.NO_INCIDENT),
        (NAN, [hit("0.1"), hit("19.1")], Judgement.RECURS),
        (NAN, [hit("19.0")], Judgement.RECURS),  # another rank of its step
        (RAISED, [hit("19.2")], Judgement.OTHER),  # no longer recorded
        # of the edited program
        (NAN, [departed("2.1"), hit("2.1")], Judgement.RECURS),
        (RAISED, [departed("2.1"), hit("2.1")], Judgement.OTHER),
        (NAN, [departed("2.1"), hit("2.1"), hit("2.2"), skipped(2)], Judgement.GONE),
        (RAISED, [departed("2.1"), hit("2.1"), skipped(2)], Judgement.GONE),
        (NAN, [departed("2.1"), hit("2.1"), skipped(2), hit("3.1")], Judgement.RECURS),
        (NAN, [departed("2.1"), skipped(2), hit("3.1")], Judgement.RECURS),
        (NAN, [departed("2.1"), hit("18.1"), skipped(18)], Judgement.UNKNOWN),  # no step after it was whole
        (RAISED, [departed("2.1"), hit("19.1"), skipped(19)], Judgement.UNKNOWN),
        # as many in a row as `record` takes for an incident
        (NAN, [departed("2.1"), *overflows(range(2, 10))], Judgement.UNKNOWN),
        (NAN, [departed("2.1"), *(n for i in range(2, 18, 2) for n in overflows([i]))], Judgement.GONE),
        # another optimizer is skipped after the first one has ended the step, or the next one has begun
        (NAN, [departed("2.1"), hit("2.1"), hit("3.1"), skipped(2), skipped(3)], Judgement.GONE),
        (NAN, [departed("2.1"), hit("2.1"), hit("3.1"), skipped(2)], Judgement.RECURS),
        # of a step that was skipped after the recorded NaN in it came again
        (NAN, [hit("19.1"), departed("19.2"), skipped(19)], Judgement.RECURS),
    ],
)  # fmt: skip
def test_overflows_that_a_gradient_scaler_skips_are_not_the_incident(
    incident: Incident, told: Sequence[Notice], judgement: Judgement
) -> None:
    assert seen_of(told, incident).judgement is judgement


def test_overflows_behind_the_end_moment_are_not_recorded_ones() -> None:
    """Of a program that never left the record."""
    assert seen_of([hit("20.1"), skipped(20)], RAISED, "22.1").judgement is Judgement.GONE
    assert seen_of([hit("20.1"), skipped(20), hit("21.1")], RAISED, "22.1").judgement is Judgement.OTHER


def test_an_incident_of_skipped_steps_occurs_again_by_skipped_steps() -> None:
    told = [departed("2.1"), *overflows(range(2, 10))]
    said = seen_of(told, was_skipped=True)
    assert said.judgement is Judgement.RECURS
    assert "a NaN or Inf at 9.1, in a step that the gradient scaler skipped, as in the recorded run" in said.text
    assert seen_of(told, RAISED, was_skipped=True).judgement is Judgement.UNKNOWN
    assert seen_of([departed("2.1"), *overflows([2])], was_skipped=True).judgement is Judgement.GONE
    assert seen_of([departed("2.1"), *overflows([18])], was_skipped=True).judgement is Judgement.UNKNOWN
    assert seen_of([departed("2.1"), *overflows([19])], was_skipped=True).judgement is Judgement.RECURS
    assert seen_of([departed("2.1"), *overflows([19])]).judgement is Judgement.UNKNOWN


def test_what_the_recorded_rank_sent_before_the_incident_counts_as_little_among_synthesized_peers() -> None:
    for incident in (RAISED, NAN):
        assert seen_of([departed("0.1"), hit("1.1")], incident, recorded=["1.1", "19.1"]).judgement is Judgement.GONE
        assert seen_of([departed("0.1"), hit("1.2")], incident, recorded=["1.1"]).judgement is not Judgement.GONE
    assert seen_of([departed("0.1"), hit("19.1")], NAN, recorded=["1.1", "19.1"]).judgement is Judgement.RECURS


def test_a_nan_that_was_skipped_is_not_called_absent() -> None:
    for first in (hit("2.1"), hit("2.2")):
        said = seen_of([departed("2.1", 1), first, skipped(2)])
        assert said.judgement is Judgement.GONE
        assert ("does not occur there" in said.text) is (first.moment != Moment(2, 1))


def test_values_that_did_not_count_are_said() -> None:
    assert seen_of([hit("0.1")], RAISED).text.endswith(
        ": no exception, no NaN or Inf but recorded ones and those of steps that a gradient scaler skipped"
    )
    assert seen_of([departed("2.1"), hit("18.1"), skipped(18)]).text.endswith(
        "inconclusive, a NaN or Inf at 18.1, in a step that the gradient scaler skipped; what it sent up to 19.1 "
        "depends only on recorded data"
    )


@pytest.mark.parametrize("kind", [IncidentKind.LOST, IncidentKind.OUT_OF_MEMORY])
@pytest.mark.parametrize(
    ("died_with", "exit_code", "reached", "judgement", "said"),
    [
        (139, 139, END, Judgement.RECURS, "the rank died: SIGSEGV (exit code 139), as in the recorded run"),
        (139, -11, END, Judgement.RECURS, "the rank died: SIGSEGV (exit code -11), as in the recorded run"),
        (3, 3, Moment(19, 2), Judgement.RECURS, "the rank died: exit code 3, as in the recorded run"),
        (139, 139, Moment(3), Judgement.OTHER, "the rank died: SIGSEGV (exit code 139)"),
        (139, 3, END, Judgement.OTHER, "exit code 3, not SIGSEGV (exit code 139) as in the recorded run"),
        (137, 139, END, Judgement.OTHER, "SIGSEGV (exit code 139), not SIGKILL (exit code 137) as in the recorded run"),
        (None, 139, END, Judgement.UNKNOWN, "the recording does not contain how the recorded rank died"),
        (139, None, END, Judgement.UNKNOWN, "the process ended for an unknown reason"),
        (139, 0, END, Judgement.UNKNOWN, "the process ended with exit code 0, without its last message"),
        (139, 0, Moment(3), Judgement.UNKNOWN, "the process ended with exit code 0, without its last message"),
        (0, 0, END, Judgement.UNKNOWN, "the process ended with exit code 0, without its last message"),
    ],
)
def test_a_death_is_the_incident_only_if_it_is_the_recorded_one(
    kind: IncidentKind,
    died_with: int | None,
    exit_code: int | None,
    reached: Moment,
    judgement: Judgement,
    said: str,
) -> None:
    """Exit code 0 may be that of a program which ends by os._exit and is well."""
    incident = Incident(kind=kind, text="", moment=END)
    found = fixed(incident, ending=Ending.LOST, died_with=died_with, exit_code=exit_code, reached=reached)
    assert found.judgement is judgement
    assert found.text.endswith(said)


def test_a_rank_that_dies_came_as_far_as_it_told(tmp_path: Path) -> None:
    """A process that ends without its last message stands nowhere."""
    listener = Listener(Received(tmp_path))
    for notice in (
        AllCompared(moment=Moment(4, 2), tally={}),
        ProgramRaised(moment=END, kind="E", text="", traceback=()),
    ):
        listener(notice)
    listener(Lost(moment=Moment(30), why="gone"))
    assert listener.came_to == END


def test_a_rank_that_dies_told_where_its_first_assumed_answer_came() -> None:
    def told(moment: str) -> Synthesized:
        return Synthesized(moment=Moment.parse(moment), op="all_reduce", collective={"identity": "group 0 #1"})

    received = SimpleNamespace(has=lambda _: True)
    listener = Listener(cast(Received, received))
    for notice in (told("1.1"), departed("3.1"), told("3.2"), told("3.3")):
        listener(notice)
    assert listener.assumed_from == Moment(3, 2)
    listener = Listener(cast(Received, received))
    listener(Departed(moment=Moment(2, 1), story={"assumed": True}))
    assert listener.assumed_from == Moment(2, 1)


TENSOR = {"kind": "tensor", "dtype": "float32", "device": "cpu", "shape": [2], "requires_grad": False, "values": [1, 2]}
STATS = {"min": -1.5, "max": 2.0, "mean": 0.25, "std": 1.0, "nan": 1, "inf": 0}


@pytest.mark.parametrize(
    ("value", "line", "says"),
    [
        ({"kind": "scalar", "type": "str", "value": "a\nb"}, "'a\\nb'", True),
        ({"kind": "scalar", "type": "int", "value": 0}, "0", False),
        ({**TENSOR, "stats": STATS}, "float32[2] min -1.5 max 2 mean 0.25 nan 1 inf 0", None),
        ({**TENSOR, "shape": [], "values": 0.0, "stats": STATS}, "0 (float32[])", False),
        ({**TENSOR, "shape": [1, 1], "values": [[3.25]], "stats": STATS}, "3.25 (float32[1, 1])", True),
        ({"kind": "object", "type": "a.B", "text": "a.B " * 100}, ("a.B " * 50).strip() + " ...", None),
    ],
)
def test_a_value_in_one_line(value: dict[str, Any], line: str, says: bool | None) -> None:
    assert (value_line(value), truth(value)) == (line, says)


def test_a_replay_that_came_nowhere_says_so() -> None:
    findings = Findings(checks=[finding(Outcome.UNDECIDED)], ending=Ending.TIMEOUT, reached=None)
    text = parsed(findings).findtext(".//error") or ""
    assert text.startswith("the replay reached no collective\n") and "None" not in text


def test_how_far_it_is_counts_recorded_collectives_and_passes_of_a_search() -> None:
    told: list[str] = []
    telling = _Telling(RECORDED, Moment(9, 1), told.append)
    telling(Progress(text="running", moment=Moment(3, 2)))
    telling(Progress(text="searching for the first NaN", moment=Moment(0), passes=3))
    assert told == [
        "replaying: collective 4 of 10, at 3.2",
        "searching for the first NaN, pass 3: collective 0 of 10, at 0.0",
    ]
