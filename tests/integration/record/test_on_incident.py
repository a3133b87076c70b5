"""`record --on-incident` in a real job: the command hears of the incident, and the job ends as it would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chain import INCIDENTS, prismdbg
from jobs import forked, recorded_by_command_line

pytestmark = pytest.mark.job

TOLD = ("kind", "text", "moment", "ranks", "capsules")


def test_a_command_hears_of_an_exception(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    job = forked(INCIDENTS / "exception" / "train.py", ranks=2)
    options = ("--keep", "0", "--on-incident", f"cat > {seen}; exit 3")
    recorded = recorded_by_command_line(job, tmp_path / "run", *options)
    assert recorded.ended.code == 1
    told = json.loads(seen.read_text())
    kept = json.loads(recorded.run.supervisor_json.read_text())
    assert {name: told[name] for name in TOLD} == {name: kept["incidents"][0][name] for name in TOLD}
    assert (told["event"], told["kind"], told["run"]) == ("incident", "exception", str(recorded.run.path))
    assert "the command of --on-incident failed with exit code 3" in kept["problems"]

    page = tmp_path / "incident.html"
    assert prismdbg("report", recorded.run.path, "-o", page).code == 0
    assert "UnicodeDecodeError" in page.read_text() and "has no capsule" in page.read_text()
