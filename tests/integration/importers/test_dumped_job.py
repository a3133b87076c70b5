"""`why` on dumps that torch's Flight Recorder wrote in a real job, which prismdbg did not record."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from chain import prismdbg
from jobs import forked, plain_environment, run
from torch_analyser import analysed

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parent.parent / "programs" / "dumped.py"


def dumped(folder: Path, what: str) -> Path:
    """The folder with the dumps of three ranks."""
    dumps = folder / "dumps"
    dumps.mkdir()
    environment = plain_environment(TORCH_FR_BUFFER_SIZE="2000")
    ended = run(forked(PROGRAM, dumps, what, ranks=3), folder / "output.txt", env=environment)
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


def test_open_shows_all_ranks_of_dumps(hung: Path) -> None:
    shown = prismdbg("open", hung)
    assert shown.code == 0, shown.err
    titles, *rows = (line.split("\t") for line in shown.out.splitlines())
    found = [dict(zip(titles, row, strict=True)) for row in rows]
    assert [row["rank"] for row in found] == ["0", "1", "2"]
    assert found[0]["moment"] == found[1]["moment"] > found[2]["moment"]
    assert all(row["source"].startswith(PROGRAM.name) for row in found)


@pytest.mark.parametrize("options", [[], ["--as-recorded"]])
def test_a_graph_is_built_of_what_came_before_the_hang(hung: Path, tmp_path: Path, options: list[str]) -> None:
    graph = tmp_path / "g.npz"
    built = prismdbg("graph", "build", hung, "--mesh", "dp=3", *options, "-o", graph)
    assert built.code == 0, built.err
    assert "every rank completed are one iteration" in built.err
    assert "2 calls, which not all members completed" in built.err
    simulated = prismdbg("graph", "simulate", graph)
    assert simulated.code == 0, simulated.err


@pytest.fixture(scope="module")
def mismatched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 2 calls reduce where the others call all_reduce."""
    return dumped(tmp_path_factory.mktemp("mismatched"), "other")


def test_a_rank_that_calls_something_else(mismatched: Path) -> None:
    first = why(mismatched)["verdicts"][0]
    assert (first["kind"], first["certainty"], first["ranks"]) == ("mismatch", "certain", [2])


@pytest.fixture(scope="module")
def fine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dumped(tmp_path_factory.mktemp("fine"), "fine")


def test_a_job_without_a_fault(fine: Path) -> None:
    assert why(fine)["verdicts"] == []


class TestTorchsOwnAnalyser:
    """It says the same: of the job's own dumps, with the members of groups, without which it fails (gloo's dumps list
    none), and of what `export` writes of them."""

    @pytest.mark.parametrize("how", ["its own dumps", "exported"])
    def test_of_the_rank_that_never_came(self, hung: Path, tmp_path: Path, how: str) -> None:
        told, verdict = judged(hung, tmp_path, how), why(hung)["verdicts"][0]
        assert missing_ranks(told) == {late["rank"] for late in verdict["never_came"]} == {2}
        assert f"sequence number: {verdict['sequence']}" in told
        assert f"main at {PROGRAM}:{waiting_line(verdict)}" in told

    @pytest.mark.parametrize("how", ["its own dumps", "exported"])
    def test_of_the_rank_that_calls_something_else(self, mismatched: Path, tmp_path: Path, how: str) -> None:
        told, verdict = judged(mismatched, tmp_path, how), why(mismatched)["verdicts"][0]
        assert f"Collective sequence number: {verdict['sequence']} has errors" in told
        assert f"Culprit rank {verdict['ranks'][0]}; Error type: {verdict['state']}" in told
        ops = {call["rank"]: call["op"] for call in verdict["calls"]}
        assert f"'{ops[0]}' does not match found collective type: '{ops[2]}'" in told

    @pytest.mark.parametrize("how", ["its own dumps", "exported"])
    def test_of_a_job_without_a_fault(self, fine: Path, tmp_path: Path, how: str) -> None:
        told = judged(fine, tmp_path, how)
        assert "sequence number" not in told and "rank" not in told


def judged(dumps: Path, folder: Path, how: str) -> str:
    if how == "exported":
        said = prismdbg("export", dumps, "--format", "flight-recorder", "-o", folder / "dumps")
        assert said.code == 0, said.err
    else:
        with_members(dumps, folder / "dumps")
    return analysed(folder / "dumps")


def with_members(dumps: Path, folder: Path) -> None:
    folder.mkdir()
    for rank in range(3):
        name = f"fr_trace_{rank}"
        dump = pickle.loads((dumps / name).read_bytes())  # noqa: S301  of a job that this test ran
        dump["pg_config"] = {
            group: {"name": group, "desc": desc, "ranks": str(ranks)}
            for group, desc, ranks in (("0", "default_pg", [0, 1, 2]), ("1", "pair", [0, 1]))
            if rank in ranks
        }
        (folder / name).write_bytes(pickle.dumps(dump))


def missing_ranks(told: str) -> set[int]:
    found = re.search(r"missing ranks: \{([\d, ]+)\}", told)
    assert found is not None, told
    return {int(rank) for rank in found[1].split(",")}


def waiting_line(verdict: dict[str, Any]) -> int:
    """Of the ranks that wait."""
    (line,) = {call["line"] for call in verdict["waiting"]}
    return int(line)


def test_what_the_debug_server_of_each_rank_answers(tmp_path: Path) -> None:
    dumps = dumped(tmp_path, "served")
    parts = [f"=== Rank {rank}: there ===\n{(dumps / f'traceback.{rank}.txt').read_text()}" for rank in range(3)]
    (dumps / "stacks_20260131_235959.txt").write_text("\n".join(parts))  # as rank 0 does for all
    found = why(dumps)
    assert (found["verdicts"], found["ranks"]) == ([], [0, 1, 2])
    for frames in found["stacks"]["ranks"].values():
        assert "serve" in [frame["name"] for frame in frames if frame["filename"] == str(PROGRAM)]
