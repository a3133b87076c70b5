"""Files that a rank's worker processes read are in its capsule, as its own are."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from chain import prismdbg
from jobs import plain_environment, recorded_by_command_line, torchrun

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "reads_in_workers.py"
KINDS = ("fork", "spawn", "forkserver")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the program read is gone from this machine."""

    capsule: Path
    sums: list[str]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("files-of-workers")
    program = folder / "job" / PROGRAM.name
    program.parent.mkdir()
    shutil.copy(PROGRAM, program)
    for number, kind in enumerate(KINDS):
        (program.parent / kind).mkdir()
        for item in range(4):
            (program.parent / kind / f"{item}.txt").write_text(f"{10 * number + item}")
            torch.tensor([100.0]).numpy().tofile(program.parent / kind / f"{item}.bin")
    with sqlite3.connect(program.parent / "numbers.db") as database:
        database.execute("create table numbers (x real)")
        database.execute("insert into numbers values (1000)")
    database.close()
    line = torchrun(program, ranks=2)
    made = recorded_by_command_line(line, folder / "run", "--window", "all", env=plain_environment(), bound_s=300)
    assert made.ended.code == 0, made.ended.output[-3000:]
    said = prismdbg("capture", made.run.path, "--rank", 1, "--origin", "start", "-o", folder / "1.capsule")
    assert said.code == 0, said.err
    shutil.rmtree(program.parent)
    sums = [line for line in made.ended.output.splitlines() if line.startswith("rank 1: ")]
    return Recorded(folder / "1.capsule", sums)


@pytest.mark.parametrize("runtime", [pytest.param("docker", marks=pytest.mark.docker), "local"])
def test_a_replay_has_them(recorded: Recorded, runtime: str) -> None:
    assert recorded.sums[0] == "rank 1: 2402.0" and len(recorded.sums) == 6
    said = prismdbg("replay", recorded.capsule, "--runtime", runtime)
    assert said.code == 0, said.out + said.err
    assert "6 collectives compared" in said.out
