"""A program under torch.compile: dynamo compiles the program's functions and none of prismdbg's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from chain import assert_identical, prismdbg
from chain import replay as replay_capsule
from jobs import forked, plain_environment, record, recorded_by_command_line, replay, run, torchrun

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "compiled.py"


@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
def test_dynamo_compiles_nothing_of_prismdbg(native: bool, tmp_path: Path) -> None:
    """The last word of a line are the functions that were compiled and are neither the program's nor torch's."""
    recorded = record(forked(PROGRAM, ranks=2), tmp_path / "run", native=native)
    assert recorded.ended.code == 0, recorded.ended.output
    bare = run(forked(PROGRAM, ranks=2), tmp_path / "bare.txt")
    assert sorted(recorded.ended.lines("rank")) == sorted(bare.lines("rank")) != []
    assert all(line.endswith("[]") for line in bare.lines("rank"))

    replayed = replay(recorded.folder(1))
    assert (replayed.code, replayed.divergence) == (0, None), replayed.output
    assert [line for line in recorded.ended.lines("rank") if line in replayed.output.splitlines()] != []


@pytest.mark.docker
def test_what_was_compiled_for_the_processor_is_compiled_again_in_a_container(tmp_path: Path) -> None:
    """By torch's own compiler, which starts one of C++, in a job that found nothing compiled."""
    cache = tmp_path / "cache"
    env = plain_environment(TORCHINDUCTOR_CACHE_DIR=str(cache))
    made = recorded_by_command_line(
        torchrun(PROGRAM, "inductor", ranks=2), tmp_path / "run", "--window", "all", env=env, bound_s=600
    )
    assert made.ended.code == 0, made.ended.output[-3000:]
    assert list(cache.rglob("*.so")), "nothing was compiled"
    capsule = tmp_path / "capsule"
    said = prismdbg("capture", made.run.path, "--rank", 1, "--origin", "start", "-o", capsule)
    assert said.code == 0, said.err
    shutil.rmtree(cache)
    assert_identical(replay_capsule(capsule, runtime="docker"), capsule)
