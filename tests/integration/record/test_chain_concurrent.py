"""Two clients of one rank at once: of two captures one is refused, and the other's capsule is whole."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from chain import PARTS, Recording, Said, assert_identical, prismdbg, recording, replay
from jobs import forked
from test_chain_interrupted import capturing, payloads_are_off

pytestmark = [pytest.mark.job, pytest.mark.criu]

RANK, WINDOW = 1, 3
PAIRS = int(os.environ.get("CAPTURE_PAIRS", "1"))


@pytest.mark.timeout(180 + 60 * PAIRS)
def test_the_refused_capture_leaves_the_other_one_alone(tmp_path: Path) -> None:
    (tmp_path / "told").mkdir()
    made = []
    with recording(forked(PARTS / "until_told.py", tmp_path / "told", ranks=2), tmp_path) as job:
        job.wait_for_step(RANK, 3)
        for number in range(PAIRS):
            made += two_at_once(job, tmp_path, number)
            job.wait_for(lambda: payloads_are_off(job), 30, "the payload window to be closed")
        (tmp_path / "told" / "last").write_text(str(job.step(0) + 5))
        assert job.end().code == 0
    for capsule in made:
        said = prismdbg("verify", capsule)
        assert said.code == 0, said.out
        assert_identical(replay(capsule), capsule)


def two_at_once(job: Recording, home: Path, number: int) -> list[Path]:
    """The capsules that were made: at least one, for who was refused met another one."""
    outputs = [home / f"{number}-{which}" for which in "ab"]

    def capture(output: Path) -> Said:
        return prismdbg("capture", job.run.path, "--rank", RANK, "--window", WINDOW, "-o", output)

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(capture, outputs))
    for one in (one for one in said if one.code):
        assert one.code == 2 and "the other capture of this rank" in one.err, one.err
    made = [output for output, one in zip(outputs, said, strict=True) if one.code == 0]
    assert made == [output for output in outputs if output.exists()]
    assert made, said
    return made


def test_a_capture_that_comes_during_the_dump(tmp_path: Path) -> None:
    """Its connection would be in the other one's image, which cannot be dumped then."""
    (tmp_path / "told").mkdir()
    with recording(forked(PARTS / "until_told.py", tmp_path / "told", ranks=2), tmp_path) as job:
        job.wait_for_step(RANK, 3)
        with capturing(job, tmp_path / "first", WINDOW) as first:
            first.comes_to("dumping")
            second = prismdbg("capture", job.run.path, "--rank", RANK, "--window", WINDOW, "-o", tmp_path / "second")
            assert first.process.wait(120) == 0
        assert second.code == 2 and "the other capture of this rank" in second.err, second.err
        (tmp_path / "told" / "last").write_text(str(job.step(0) + 5))
        assert job.end().code == 0
    assert_identical(replay(tmp_path / "first"), tmp_path / "first")
