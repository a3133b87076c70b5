"""The programs that `make bench` measures with run, with little to do: nobody runs the benchmarks at each change."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from jobs import run

from tests.bench.jobs import PROGRAMS, environment, gpt, recorded

pytestmark = pytest.mark.job


def test_the_recorder_is_put_in_and_taken_out_between_steps(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    program = gpt("--size", "tiny", "--batch", 2, "--out", out, "--rounds", 1, "--block", 1)
    ended = run(recorded(tmp_path / "run", [], program), tmp_path / "output.txt", env=environment())
    assert ended.code == 0, ended.output[-3000:]
    modes = {mode for mode, *_ in json.loads((out / "1.json").read_text())}
    assert sorted(modes) == ["bare", "bare again", "off", "recorded", "window 1", "window 8"]


@pytest.mark.parametrize("kind", ["native", "python"])
def test_a_kernel_is_measured_in_every_mode(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAMS / "hot_calls.py"), "--kind", kind, "--calls", "2", "--rounds", "1"]
    ended = run(command, tmp_path / "output.txt", env=environment())
    assert ended.code == 0, ended.output[-3000:]
    assert set(json.loads(ended.output.splitlines()[-2])) == {"bare", "off", "recorded", "window"}
