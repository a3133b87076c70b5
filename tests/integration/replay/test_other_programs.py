"""A rank that takes its input from other programs, where a replay lacks them or what they look at."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from chain import prismdbg
from jobs import ROOT, plain_environment, recorded_by_command_line, torchrun

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "asks_programs.py"
COMMIT = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first")


@pytest.fixture(scope="module")
def capsules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By origin. What the programs look at is gone from this machine."""
    folder = tmp_path_factory.mktemp("other-programs")
    home = folder / "job"
    home.mkdir()
    program = Path(shutil.copy(PROGRAM, home))
    for words in (("init", "-q"), COMMIT):
        subprocess.run(["git", *words], cwd=home, check=True, timeout=60)
    (home / "marker").touch()
    (home / "beside").write_text("#!/bin/sh\necho 17\n")
    (home / "beside").chmod(0o755)
    line, options = torchrun(program, ranks=2), ("--window", "all", "--state-every", "2")
    env = plain_environment(PYTHONPATH=str(ROOT / "examples" / "vendored"))
    made = recorded_by_command_line(line, folder / "run", *options, env=env, bound_s=300)
    assert made.ended.code == 0, made.ended.output[-3000:]
    taken = {origin: folder / f"{origin}.capsule" for origin in ("start", "state")}
    for origin, capsule in taken.items():
        said = prismdbg("capture", made.run.path, "--rank", 1, "--origin", origin, "-o", capsule)
        assert said.code == 0, said.err
    shutil.rmtree(home)
    return taken


@pytest.mark.parametrize("runtime", [pytest.param("docker", marks=pytest.mark.docker), "local"])
@pytest.mark.parametrize("origin", ["start", "state"])
def test_it_gets_what_the_recorded_rank_got(capsules: dict[str, Path], origin: str, runtime: str) -> None:
    said = prismdbg("replay", capsules[origin], "--runtime", runtime)
    text = said.out + said.err
    assert said.code == 0, text
    assert "git rev-parse HEAD: answered from the recording: here it ends with exit code 128" in text
    assert "/beside: answered from the recording: it cannot be started here" in text
