"""`prismdbg diff` on real folders: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from capsules import make_capsule
from tiny_log import TinyLog, write_training

from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode


def run_of(path: Path, *, received: bytes = b"\0" * 16, op: str = "allreduce_") -> Path:
    """Two ranks; rank 1's last all_reduce received `received`."""
    for rank in range(2):
        log = TinyLog(path / "ranks" / f"{rank}.0", rank)
        log.group("0", (0, 1), "default_pg")
        log.complete(log.issue(0, 1), b"\1" * 16)
        log.complete(log.issue(0, 2, op=op), received if rank else b"\0" * 16)
    return path


def test_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_capsule(tmp_path / "capsule")
    write_training(tmp_path / "run" / "ranks" / "0.0")
    assert main.run(["diff", str(tmp_path / "capsule"), str(tmp_path / "run")]) == ExitCode.OK
    printed = capsys.readouterr().out
    assert "no difference: 6 collectives compared, 6 by what was sent, 6 by what was received" in printed
    assert "all_reduce" in printed and "1.00" in printed


def test_two_ranks_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(run_of(tmp_path / "run", received=b"\0\0\x80\x3f" + b"\0" * 12))
    assert main.run(["diff", path, "--rank", "0", "--rank", "1"]) == ExitCode.DIVERGED
    printed = capsys.readouterr().out
    assert "first difference: received other values" in printed
    assert "output[0] float32[4]: 1 element differs, by at most 1, relatively 1, the largest at [0]" in printed
    assert main.run(["diff", path, "--rank", "0", "--rank", "1", "--json"]) == ExitCode.DIVERGED
    found = json.loads(capsys.readouterr().out)
    assert (found["difference"]["aspect"], found["received"]) == ("received", 2)


def test_the_same_rank_of_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(run_of(tmp_path / "a")), str(run_of(tmp_path / "b", op="broadcast_"))]
    assert main.run(["diff", *paths, "--rank", "1"]) == ExitCode.DIVERGED
    assert "first difference: operator all_reduce and broadcast" in capsys.readouterr().out


def test_nothing_in_common(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_capsule(tmp_path / "capsule")
    log = TinyLog(tmp_path / "run" / "ranks" / "0.0")
    log.complete(log.issue(99, 1))
    assert main.run(["diff", str(tmp_path / "capsule"), str(tmp_path / "run")]) == ExitCode.INCONCLUSIVE
    assert "nothing to compare" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "nothing to compare with"),
        (["RUN"], "has 2 ranks"),
        (["--rank", "0", "--rank", "1", "--rank", "1"], "--rank is given 3 times"),
        (["--rank", "0", "--rank", "5"], "no log of rank 5"),
        (["nowhere"], "no such file or directory"),
    ],
)
def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str) -> None:
    path = str(run_of(tmp_path / "run"))
    assert main.run(["diff", path, *(path if word == "RUN" else word for word in more)]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
