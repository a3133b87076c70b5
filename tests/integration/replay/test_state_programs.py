"""Programs as people write them, under torchrun: each is captured from a later state snapshot and replayed bit for bit.
Before its gradients a program sends what a step rests on, each part alone: a failure shows the line of what differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import assert_identical, prismdbg, replay
from jobs import EXAMPLES, ROOT, Job, forked, plain_environment, recorded_by_command_line, torchrun

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Origin

pytestmark = pytest.mark.job

PROGRAMS = Path(__file__).parent.parent / "programs"
ENVIRONMENT = plain_environment(PYTHONPATH=f"{ROOT / 'examples' / 'vendored'}:{EXAMPLES}")


@pytest.mark.parametrize(
    ("program", "rank", "start", "end"),
    [("stateful_nanogpt.py", 0, 9, 12), ("stateful_loader.py", 1, 12, 16)],
    ids=["nanogpt", "torchdata"],
)
def test_it_goes_on_from_a_later_snapshot(program: str, rank: int, start: int, end: int, tmp_path: Path) -> None:
    """The batch drawn ahead, dropout, the rate, the gradient scaler, the loader's place: all are those recorded. The
    GPT is evaluated between steps 7 and 8, so its snapshot is a step later."""
    line = torchrun(PROGRAMS / program, ranks=2)
    made = recorded_by_command_line(line, tmp_path / "run", "--state-every", "4", env=ENVIRONMENT)
    assert made.ended.code == 0, made.ended.output
    capsule = tmp_path / "capsule"
    said = prismdbg("capture", made.run.path, "--rank", rank, "-o", capsule)
    assert said.code == 0, said.err
    manifest = Capsule.open(capsule).manifest
    assert (manifest.origin, manifest.moment_a.step, manifest.moment_b.step) == (Origin.STATE, start, end - 1)
    verdict = replay(capsule)
    assert_identical(verdict, capsule)
    assert verdict["states"] and all(state["equal"] for state in verdict["states"])


def test_a_loader_begins_its_first_epoch_as_in_the_bare_job(tmp_path: Path) -> None:
    """Its order is that of the epoch which the program sets behind its restore point."""
    line = forked(PROGRAMS / "stateful_loader.py", "--shared", "--steps", 3, ranks=2)
    bare = Job(line, tmp_path / "bare", env=ENVIRONMENT).wait()
    made = recorded_by_command_line(line, tmp_path / "run", "--state-every", "2", env=ENVIRONMENT)
    assert (bare.code, made.ended.code) == (0, 0), bare.output + made.ended.output
    assert made.ended.lines("epoch") == bare.lines("epoch") != []
