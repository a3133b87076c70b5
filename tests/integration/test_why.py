"""`prismdbg why` after real jobs: the three incidents of `examples/`, recorded and asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.job

ROOT = Path(__file__).resolve().parents[2]
BOUND_S = 120


def why(run: Path, prismdbg_command: tuple[str, ...], script: str, *options: str) -> list[dict[str, Any]]:
    """The verdicts on a recorded run of four ranks."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    record = [*prismdbg_command, "record", "-o", str(run), "--trigger", "nan", "--"]
    job = [*record, *torchrun, str(ROOT / "examples/incidents" / script / "train.py"), *options]
    subprocess.run(job, cwd=ROOT, capture_output=True, timeout=BOUND_S, check=False)
    answer = subprocess.run(
        [*prismdbg_command, "why", str(run), "--json"], cwd=ROOT, capture_output=True, timeout=BOUND_S, check=True
    )
    verdicts: list[dict[str, Any]] = json.loads(answer.stdout)["verdicts"]
    return verdicts


def test_who_sent_the_first_nan(run_dir: Path, prismdbg_command: tuple[str, ...]) -> None:
    nan = why(run_dir, prismdbg_command, "nan", "--steps", "14")[0]

    assert (nan["kind"], nan["certainty"], nan["ranks"], nan["moment"]) == ("nonfinite", "certain", [2], "11.1")
    assert nan["call"]["filename"].endswith("incidents/nan/train.py")
    assert [call["rank"] for call in nan["received"]] == [0, 1, 3]


def test_who_never_came(run_dir: Path, prismdbg_command: tuple[str, ...], tmp_path: Path) -> None:
    verdicts = why(run_dir, prismdbg_command, "hang", "--timeout", "5", "--out", str(tmp_path / "out"))

    stopped = next(verdict for verdict in verdicts if verdict["kind"] == "stopped")
    assert (stopped["certainty"], stopped["moment"]) == ("certain", "20.1")
    assert [absent["rank"] for absent in stopped["never_came"]] == [2]
    assert stopped["never_came"][0]["last"]["moment"].startswith("19.")
    assert {call["rank"] for call in stopped["waiting"]} == {0, 1, 3}


def test_who_raised_first(run_dir: Path, prismdbg_command: tuple[str, ...]) -> None:
    raised = why(run_dir, prismdbg_command, "exception")[0]

    assert (raised["kind"], raised["certainty"], raised["ranks"]) == ("raised", "certain", [1])
    assert raised["type"] == "UnicodeDecodeError"
