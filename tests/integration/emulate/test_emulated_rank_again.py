"""An emulated rank is debugged as a captured one is: it runs again from its start and receives what it received."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from chain import Said, prismdbg
from emulated import emulate, emulated, log_of, python

from prismdbg.jobs.injection import cache_dir
from prismdbg.model import synthesis
from prismdbg.rank.tracing import tracer

pytestmark = pytest.mark.job

LINES = """
next 8
peers
print drawn
next
reverse-next
print local.drawn
goto 1.1
print counts
print model.module.weight
continue
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Rank 1 of 8,192, and what it printed; rank 0 ran for its values."""
    home = tmp_path_factory.mktemp("again")
    mesh = "pp=16,dp=64,tp=8"
    program = python("emulated_again.py")
    said = emulated(home / "run", 8192, mesh, "--ranks", 1, "--steps", 2, "--seed", 3, program=program)
    (line,) = (line for line in said.splitlines() if line.startswith("rank 1 "))
    return home / "run", line


def test_it_runs_again_as_it_was(run: tuple[Path, str]) -> None:
    path, said = run
    assert "of rank 0 [0, 7, 11]" in said
    made = {record.made for record in log_of(path, 1).collectives}
    assert made >= {synthesis.ECHO, synthesis.NOISE, synthesis.DONOR}
    verdict = prismdbg("replay", path, "--rank", 1, "--runtime", "local", "--json").json
    assert verdict["outcome"] == "identical"
    assert verdict["output"].strip() == said
    tally, states = verdict["tally"], verdict["states"]
    assert (tally["again"], tally["synthesized"], tally["missing"]) == (tally["compared"], 0, 0)
    assert states and all(state["equal"] for state in states)


def test_it_is_debugged_both_ways_with_the_same_bits(run: tuple[Path, str], tmp_path: Path) -> None:
    path, said = run
    (tmp_path / "lines").write_text(LINES)
    first = _debugged(path, tmp_path / "lines")
    assert first.code == 0, first.out
    drawn = re.findall(r"^  \[ .*\]$", first.out, re.MULTILINE)
    assert drawn[0] == drawn[1]
    assert first.out.count("note: depends on synthesized peers") == 4
    assert re.search(r"^ +0 +0 +synthesized +unknown$", first.out, re.MULTILINE), "nobody waited for anybody"
    assert said in first.out and "synthesized as in the emulation" in first.out


def test_another_session_says_the_same(run: tuple[Path, str], tmp_path: Path) -> None:
    path, _ = run
    (tmp_path / "lines").write_text(LINES)
    first, second = (_debugged(path, tmp_path / "lines") for _ in range(2))
    assert first.out == second.out


def _debugged(path: Path, lines: Path) -> Said:
    return prismdbg("replay", path, "--rank", 1, "--runtime", "local", "-x", lines)


def test_what_a_run_says_of_it(run: tuple[Path, str]) -> None:
    path, _ = run
    why = prismdbg("why", path)
    assert why.code == 0 and "1 of 8,192 ranks of pp=16,dp=64,tp=8 ran" in why.out
    refused = prismdbg("debug", path, "--rank", 9)
    assert refused.code == 2 and "rank 9 (pp=0 dp=1 tp=1) did not run, only 1 did" in refused.err
    told = prismdbg("inspect", path, "--rank", 1).out
    assert "emulated, without real peers: pp=16,dp=64,tp=8" in told


HOARDS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
kept = []
for step in range(40):
    kept.append(torch.ones(25_000))
    dist.all_reduce(kept[-1])
"""


def test_what_failed_under_a_cap_fails_again_at_the_same_allocation(tmp_path: Path) -> None:
    if reason := tracer.unavailable(cache_dir()):
        pytest.skip(reason)
    (tmp_path / "hoards.py").write_text(HOARDS)
    program = [sys.executable, "-W", "ignore", str(tmp_path / "hoards.py")]
    failed = emulate(tmp_path / "run", 64, "dp=64", "--ranks", 7, "--memory-cap", "1MiB", program=program)
    assert failed.returncode == 6 and "its own blocks hold 1000000 bytes at 0.10.1, in aten::empty" in failed.stderr
    verdict = prismdbg("replay", tmp_path / "run", "--rank", 7, "--runtime", "local", "--json").json
    assert verdict["outcome"] == "identical"
    assert "its own blocks hold 1000000 bytes at 0.10.1" in verdict["raised"]["text"]
