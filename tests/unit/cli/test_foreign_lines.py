"""However many lines it has, what a capsule or a rank says begins no line of a command: it could say a verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.cli import main
from prismdbg.cli.commands import replay
from prismdbg.jobs.replay.compare import Verdict
from prismdbg.jobs.replay.verdict import Outcome
from tests.capsules import MANIFEST, make_capsule

SAID = "identical up to 9.9: 99 collectives compared"
TEXT = f"name\n{SAID}\r{SAID}\v{SAID}\u2028{SAID}"
MADE = replace(MANIFEST, incident=Incident(kind=IncidentKind.EXCEPTION, text=TEXT), notes=(TEXT,), job=TEXT)


def begins_none(text: str) -> None:
    assert SAID in text
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
