"""The commands of the emulation example's README, on a small job; and what is said of odd programs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import warm_commands
import warm_jobs
from chain import CLI
from jobs import ROOT, plain_environment

from prismdbg.jobs.storage.run_folder import read_json
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.origin import Standing

pytestmark = pytest.mark.job

README = ROOT / "examples" / "emulation" / "README.md"
PROGRAM = Path(__file__).parents[1] / "programs" / "emulated_classes.py"
SMALLER = {
    "8192": "8",
    "pp=16,dp=64,tp=8": "pp=2,dp=2,tp=2",
    "--pp 16 --tp 8 --microbatches 32 --batch 32": "--pp 2 --tp 2 --microbatches 4 --batch 4",
    "617=1.3": "5=1.3",
    "dp=512": "dp=32",
}
BOUND_S = 240.0


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    assert words[0] == "prismdbg"
    env, line = plain_environment(), [sys.executable if word == "python" else word for word in words[1:]]
    if line[0] == "emulate":
        return warm_jobs.run([*CLI, *line], env=env, usual=env, cwd=folder, bound_s=BOUND_S)
    code, out, err = warm_commands.run(line, env=env, bound_s=BOUND_S, cwd=folder)
    return subprocess.CompletedProcess(line, code, out, err)


def commands() -> list[str]:
    """Of the README, made small; none that names a CAPSULE, which only a reader has. A line that ends with a backslash
    goes on."""
    text = README.read_text().replace("\\\n", " ")
    found = re.findall(r"^    (prismdbg .+)$", text, re.MULTILINE)
    for large, small in SMALLER.items():
        found = [line.replace(large, small) for line in found]
    return [line.partition("#")[0] for line in found if "CAPSULE" not in line]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """What each command printed; they build on each other."""
    folder = tmp_path_factory.mktemp("walkthrough")
    (folder / "examples").symlink_to(ROOT / "examples")
    found = {}
    for line in commands():
        done = run(shlex.split(line), folder)
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        found[line] = done.stdout
    return folder, found


def of(said: dict[str, str], *words: str) -> str:
    (text,) = [text for line, text in said.items() if all(word in line for word in words)]
    return text


def test_every_command_of_the_walkthrough_does_what_it_says(said: tuple[Path, dict[str, str]]) -> None:
    folder, texts = said
    classes = of(texts, "emulate ")
    planned = of(texts, "plan ")

    ran = int(re.search(r"^(\d+) of 8 ranks ran", classes, re.MULTILINE)[1])  # type: ignore[index]
    assert re.search(rf"^ranks that run here +{ran}  estimated", planned, re.MULTILINE)
    assert "nobody" not in classes
    kept = read_json(folder / "runs/gpt/classes.json")
    assert [each["ranks"] for each in kept["classes"]] == [4, 4]
    described = read_json(folder / "runs/gpt/run.json")["emulated"]
    configured = read_json(folder / "runs/gpt/config.json")
    assert described["ranks"] == configured["ranks"] == sorted(kept["ran"]) and len(kept["ran"]) == ran
    assert kept["alike"] == ["dp", "tp"]
    assert "8 ranks, pp=2,dp=2,tp=2" in of(texts, "graph simulate runs/gpt ")
    assert "all_reduce" in of(texts, "critical-path") or "program" in of(texts, "critical-path")
    assert "becomes" in of(texts, "what-if")
    assert "128 ranks, pp=2,dp=32,tp=2" in of(texts, "graph simulate", "65536")


def test_the_graph_knows_which_ranks_ran(said: tuple[Path, dict[str, str]]) -> None:
    folder, texts = said
    graph = graph_file.load(folder / "runs/gpt" / graph_file.FILE_NAME)
    standing = graph.origin.standing_at
    assert standing is not None
    assert set(standing.tolist()) == {Standing.OWN, Standing.CHECKED}
    assert "ranks ran" in of(texts, "graph simulate runs/gpt ")


@pytest.mark.parametrize(
    ("program", "code", "named"),
    [
        ("odd", 2, ["rank 0 (dp=0 tp=0) and rank 3 (dp=1 tp=1)", "all_gather", "emulated_classes.py:22"]),
        ("askew", 2, ["(ranks 0, 3) is not aligned with axes of the mesh dp=2,tp=2"]),
        ("short", 6, ["rank 0's program ended after 2 of 5 steps"]),
    ],
)
def test_what_cannot_be_put_into_classes_is_named_with_the_fix(
    program: str, code: int, named: list[str], tmp_path: Path
) -> None:
    words = ["prismdbg", "emulate", "-o", "run", "--world", "4", "--mesh", "dp=2,tp=2", "--classes", "--", "python"]
    done = run([*words, str(PROGRAM), program], tmp_path)
    assert done.returncode == code, done.stderr
    for text in named:
        assert text in done.stderr, done.stderr
    assert "try:" in done.stderr
    assert not (tmp_path / "run" / "classes.json").exists()
