"""`why` on dumps that torch's Flight Recorder wrote in a real job, which prismdbg did not record."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from chain import prismdbg
from jobs import plain_environment, run, torchrun

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parent.parent / "programs" / "dumped.py"


def dumped(folder: Path, what: str) -> Path:
    """The folder with the dumps of three ranks."""
    dumps = folder / "dumps"
    dumps.mkdir()
    environment = plain_environment(TORCH_FR_BUFFER_SIZE="2000")
    ended = run(torchrun(PROGRAM, dumps, what, ranks=3), folder / "output.txt", env=environment)
    assert ended.code == 0, ended.output[-3000:]
    return dumps


def why(dumps: Path) -> dict[str, Any]:
    said = prismdbg("why", "--json", dumps)
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 2 stays away from the last call."""
    return dumped(tmp_path_factory.mktemp("hung"), "skip")


def test_the_rank_that_never_came(hung: Path, tmp_path: Path) -> None:
    dumps = shutil.copytree(hung, tmp_path / "dumps")
    found = why(dumps)
    (verdict,) = found["verdicts"]
    assert (verdict["kind"], verdict["certainty"], verdict["never_came"][0]["rank"]) == ("stopped", "likely", 2)
    assert PROGRAM.name in json.dumps(verdict["never_came"][0]["last"])
    for text in dumps.glob("*.json"):  # of a job whose pickles are lost
        text.with_suffix("").unlink()
    without = why(dumps)
    assert without["verdicts"][0]["never_came"][0]["rank"] == 2
    assert any("has no stacks" in line for line in without["missing"])


@pytest.mark.parametrize("options", [[], ["--as-recorded"]])
def test_a_graph_is_built_of_what_came_before_the_hang(hung: Path, tmp_path: Path, options: list[str]) -> None:
    graph = tmp_path / "g.npz"
    built = prismdbg("graph", "build", hung, "--mesh", "dp=3", *options, "-o", graph)
    assert built.code == 0, built.err
    assert "every rank completed are one iteration" in built.err
    assert "2 calls, which not all members completed" in built.err
    simulated = prismdbg("graph", "simulate", graph)
    assert simulated.code == 0, simulated.err


def test_a_rank_that_calls_something_else(tmp_path: Path) -> None:
    first = why(dumped(tmp_path, "other"))["verdicts"][0]
    assert (first["kind"], first["certainty"], first["ranks"]) == ("mismatch", "certain", [2])


def test_a_job_without_a_fault(tmp_path: Path) -> None:
    assert why(dumped(tmp_path, "fine"))["verdicts"] == []


def test_what_the_debug_server_of_each_rank_answers(tmp_path: Path) -> None:
    found = why(dumped(tmp_path, "served"))
    assert (found["verdicts"], found["ranks"]) == ([], [0, 1, 2])
