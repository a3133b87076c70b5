"""A program that reports to an experiment tracker, replayed: with a fake in place of wandb, whose server is a file."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from chain import assert_identical, prismdbg, replay
from jobs import plain_environment, recorded_by_command_line, torchrun

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "tracked.py"
FAKE = """
import secrets

class Run:
    def __init__(self, mode):
        self.id, self.name, self.dir = secrets.token_hex(4), "x" * (1 + secrets.randbelow(1000)), "."
        self.log = self.finish = (lambda *_: None) if mode == "disabled" else report

def init(project, mode):
    run = Run(mode)
    globals().update(log=run.log, finish=run.finish)
    run.log()
    return run

def report(*_, **__):
    with open(SERVER, "a") as file:
        file.write("reported\\n")

login = report
setup = None
"""


def test_a_replay_reports_nothing_and_sends_the_recorded_id(tmp_path: Path) -> None:
    server = tmp_path / "server"
    program = tmp_path / "job" / "tracked.py"
    program.parent.mkdir()
    shutil.copy(PROGRAM, program)
    program.with_name("wandb.py").write_text(f"SERVER = {str(server)!r}\n{FAKE}")
    env = plain_environment(WANDB_API_KEY="0123456789abcdef")
    made = recorded_by_command_line(torchrun(program, ranks=2), tmp_path / "run", "--window", "all", env=env)
    assert made.ended.code == 0, made.ended.output[-3000:]
    capsule = tmp_path / "capsule"
    said = prismdbg("capture", made.run.path, "--rank", 0, "--origin", "start", "-o", capsule)
    assert said.code == 0, said.err
    reported = server.read_text()
    assert reported == "reported\n" * 4
    assert_identical(replay(capsule, "--strict", "--allow-writes", runtime="plain"), capsule)
    assert server.read_text() == reported
    assert capsule.with_name("capsule.output").read_text().count("wandb is off: a replay reports to no tracker") == 1
    lines = ("--world", 2, "--mesh", "dp=2", "--ranks", 0, "-o", tmp_path / "emulated", "--", sys.executable, program)
    said = prismdbg("emulate", *lines, env=env)
    assert said.code == 0, said.err
    assert server.read_text() == reported, "an emulated rank trains nothing"
