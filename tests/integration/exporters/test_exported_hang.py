"""The recorded hang of `examples/` in other tools: torch's own analyser names the rank that `why` names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from chain import INCIDENTS, prismdbg
from jobs import forked, plain_environment, recorded_by_command_line

pytestmark = pytest.mark.job


def test_torch_and_why_name_the_same_rank(tmp_path: Path) -> None:
    job = forked(INCIDENTS / "hang" / "train.py", "--timeout", 5, "--out", tmp_path / "out", ranks=4)
    run = recorded_by_command_line(job, tmp_path / "run", "--trigger", "none").run.path
    stopped = next(v for v in prismdbg("why", run, "--json").json["verdicts"] if v["kind"] == "stopped")

    said = prismdbg("export", run, "--format", "flight-recorder", "-o", tmp_path / "dumps")
    assert said.code == 0 and "4 dumps" in said.err, said.err
    analyser = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(tmp_path / "dumps")]
    ran = subprocess.run(analyser, env=plain_environment(), capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    told = ran.stdout + ran.stderr

    assert [absent["rank"] for absent in stopped["never_came"]] == [2]
    assert re.findall(r"missing ranks: (\{.*\})", told)[0] == "{2}", told
    assert f"sequence number: {stopped['sequence']}" in told
    waiting = stopped["waiting"][0]
    assert f"{waiting['filename']}:{waiting['line']}" in told, told
    again = prismdbg("why", tmp_path / "dumps", "--json").json["verdicts"]
    assert [absent["rank"] for absent in again[0]["never_came"]] == [2]

    said = prismdbg("export", run, "--format", "perfetto", "-o", tmp_path / "t.pftrace")
    assert said.code == 0 and "4 ranks" in said.err, said.err
