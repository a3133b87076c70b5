"""A capsule whose replay computes with other rounding, as other hardware does: compared by sketches, and said so."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import prismdbg, replay
from jobs import ROOT, forked, plain_environment, recorded_by_command_line

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.reader import read_log

pytestmark = pytest.mark.job

HOOKS = plain_environment(PYTHONPATH=str(ROOT / "examples" / "vendored"))
PROGRAM = Path(__file__).parent.parent / "programs" / "stateful_mlp.py"


def captured_elsewhere(home: Path, *options: str) -> Path:
    """The capsule of a rank whose hardware rounds otherwise than that of its replay."""
    coarse = home / "coarse"
    coarse.touch()
    job = forked(PROGRAM, "--steps", 10, "--coarse", coarse, ranks=2)
    made = recorded_by_command_line(job, home / "run", "--state-every", "4", *options, env=HOOKS)
    assert made.ended.code == 0, made.ended.output
    coarse.unlink()
    capsule = home / "capsule"
    said = prismdbg("capture", made.run.path, "--rank", 0, "-o", capsule)
    assert said.code == 0, said.err
    return capsule


@pytest.mark.parametrize("kernels", [(), ("--python-kernels",)], ids=["native", "python"])
def test_values_that_are_close_are_within_the_tolerance_and_never_identical(
    kernels: tuple[str, ...], tmp_path: Path
) -> None:
    capsule = captured_elsewhere(tmp_path, "--sketches", *kernels)
    records = [r for r in read_log(Capsule.open(capsule).log).collectives if r.moment.step >= 8]
    assert records and all(r.sketch is not None for r in records)
    verdict = replay(capsule, "--tolerance", "0.05")
    tally = verdict["tally"]
    assert verdict["outcome"] == "within tolerance"
    assert 0 < tally["within"] <= tally["compared"] and tally["unsketched"] == 0
    assert 0 < tally["farthest"] <= 0.05
    assert "not bit for bit" in verdict["summary"] and "only by sketches" in verdict["summary"]
    far = replay(capsule, "--tolerance", "1e-9", code=5)["story"]["differences"]
    assert [d["field"] for d in far] == ["sent", "tolerance"]
    assert far[1]["expected"] == "at most 1e-09"


def test_without_sketches_what_differs_is_inconclusive(tmp_path: Path) -> None:
    capsule = captured_elsewhere(tmp_path)
    verdict = replay(capsule, "--tolerance", "0.05", code=7)
    assert verdict["outcome"] == "inconclusive" and verdict["tally"]["unsketched"] > 0
    assert "has no sketch of their values" in verdict["why"]
