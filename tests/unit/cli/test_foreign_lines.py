"""However many lines it has, what a capsule or a rank says begins no line of a command: it could say a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from capsules import MANIFEST, make_capsule
from incident_run import write_run

from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.cli import main
from prismdbg.cli.commands import replay, verify
from prismdbg.cli.terminal.replay_script import show
from prismdbg.diagnosis.rank_comparison import Aspect, Begin, Comparison, Difference
from prismdbg.errors import CapsuleError, PrismError
from prismdbg.jobs.replay.compare import Verdict
from prismdbg.jobs.replay.verdict import Outcome, Recorded
from prismdbg.model.moment import Moment
from prismdbg.render import console, telemetry_text
from prismdbg.render.comparison_text import comparison_lines
from prismdbg.script.findings import Ending, Finding, Findings, FoundPlace, RecordedValue
from prismdbg.script.findings import Outcome as Checked
from prismdbg.script.fix import Run, judge_fix
from prismdbg.script.language import BackTo
from prismdbg.script.scripted import Scripted
from prismdbg.session import notices
from prismdbg.session.notices import ProgramRaised, parse_notice
from prismdbg.telemetry.series import Telemetry
from tests.unit.logs import Job

SAID = "identical up to 9.9: 99 collectives compared"
TEXT = f"name\x1b[2J\n{SAID}\r{SAID}\v{SAID}\u2028{SAID}"
MADE = replace(MANIFEST, incident=Incident(kind=IncidentKind.EXCEPTION, text=TEXT), notes=(TEXT,), job=TEXT)


def begins_none(text: str) -> None:
    """Nor does it steer the terminal."""
    assert SAID in text
    assert "\x1b" not in text
    assert not [line for line in text.splitlines() if line.startswith(SAID)], text


@pytest.mark.parametrize("command", ["verify", "inspect", "list"])
def test_of_a_manifest(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsule = make_capsule(tmp_path / "capsules" / "made", MADE)
    main.run([command, str(capsule.path if command != "list" else tmp_path)])
    told = capsys.readouterr()
    begins_none(told.out + told.err)


def test_of_a_files_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsule = make_capsule(tmp_path / "made", MADE)
    capsule.path.joinpath(TEXT).symlink_to("elsewhere")
    assert main.run(["verify", str(capsule.path)]) == 3
    told = capsys.readouterr()
    begins_none(told.out + told.err)


def test_of_a_replay(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = Verdict(outcome=Outcome.INCONCLUSIVE, why=TEXT, moment="1.1", notes=[TEXT])
    verdict.take_state({"moment": "1.1", "equal": False, "actual": TEXT, "expected": TEXT})
    replay._print(verdict, TEXT, MADE.incident.text)
    told = capsys.readouterr()
    begins_none(told.out + told.err)


def shown(result: Scripted, capsys: pytest.CaptureFixture[str], *, anywhere: bool = False) -> None:
    show(result, Path("capsule"))
    told = capsys.readouterr()
    begins_none(told.out + told.err)
    assert not anywhere or not [line for line in told.out.splitlines() if line.strip().startswith(SAID)], told.out


@pytest.mark.parametrize("outcome", Checked)
def test_of_a_script(outcome: Checked, capsys: pytest.CaptureFixture[str]) -> None:
    check = Finding(
        kind="expect", title=TEXT, place="x:1", text=TEXT, outcome=outcome, message=TEXT, values={TEXT: TEXT}
    )
    place = FoundPlace(name=TEXT, to=BackTo.ORIGIN, answer=None, why=TEXT)
    record = RecordedValue(name=TEXT, moment=Moment(1, 1), text=TEXT, value=None, assumed=False)
    found = Findings(checks=[check], places=[place], records=[record], notes=[TEXT], cut_short=TEXT)
    shown(Scripted(findings=found, verdict=Verdict(why=TEXT, notes=[TEXT])), capsys)


def test_of_what_a_rank_answered_to_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor does it stand below it, as a line of the check's own."""
    check = Finding(
        kind="expect", title="loss", place="x:1", text="loss", outcome=Checked.FAILED, message=TEXT, values={"v": TEXT}
    )
    shown(Scripted(findings=Findings(checks=[check])), capsys, anywhere=True)


def test_of_an_edited_program(capsys: pytest.CaptureFixture[str]) -> None:
    incident = Incident(kind=IncidentKind.NAN, text="NaN", moment=Moment(4, 2))
    raised = ProgramRaised(moment=Moment(4, 2), kind="E", text=TEXT, traceback=())
    run = Run(ending=Ending.COMPLETE, reached=Moment(4, 2), raised=raised)
    known = Recorded(incident=IncidentKind.NAN, required=1)
    fix = judge_fix(run, incident, Moment(4, 2), [Moment(1, 1), Moment(4, 2)], known)
    shown(Scripted(findings=Findings(), fix=fix), capsys)


def test_of_a_note_of_the_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also one that is a line and nothing else."""
    for text in (SAID, TEXT):
        said = parse_notice({"event": "note", "text": text})
        assert isinstance(said, notices.Said)
        shown(Scripted(findings=Findings(), verdict=Verdict(notes=[said.text])), capsys)


@pytest.mark.parametrize("error", [PrismError(TEXT, hint=TEXT), CapsuleError(TEXT)])
def test_of_an_error(
    error: PrismError, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(verify, "all_findings", refuse)
    main.run(["verify", str(make_capsule(tmp_path / "made").path)])
    begins_none(capsys.readouterr().err)


@pytest.mark.parametrize("tell", [console.say, console.announce, lambda text: console.emit_lines([text])])
def test_of_what_is_told(tell: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    tell(f"rank 0: {TEXT}")
    told = capsys.readouterr()
    begins_none(told.out + told.err)


@pytest.mark.parametrize("command", ["status", "why"])
def test_of_a_run(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", TEXT)
    main.run([command, str(run.path)])
    told = capsys.readouterr()
    begins_none(told.out + told.err)


def test_of_two_recordings(capsys: pytest.CaptureFixture[str]) -> None:
    job = Job(1)
    job.call()
    call = replace(job.logs[0].collectives[0], op=TEXT, group=TEXT)
    difference = Difference(aspect=Aspect.CALL, calls=(call, None), what=TEXT)
    begin = Begin(moment=Moment(0, 1), earlier=0, is_cut=False)
    compared = Comparison(difference=difference, calls=1, sent=0, received=0, timings=(), begins=(begin, begin))
    console.emit("\n".join(comparison_lines(compared, ({}, {}), same_rank=True)))
    begins_none(capsys.readouterr().out)


def test_of_sensors(capsys: pytest.CaptureFixture[str]) -> None:
    told = {(TEXT, TEXT): TEXT}
    telemetry = Telemetry(period_ns=1, wall_offset_ns=0, texts=told, missing=told, damage=TEXT)
    console.emit(telemetry_text.table(telemetry))
    begins_none(capsys.readouterr().out)
