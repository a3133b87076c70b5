"""A replay finds the files that were there at A, and none that the rank made only later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chain import PARTS, assert_identical, prismdbg, recording, replay
from jobs import torchrun

pytestmark = [pytest.mark.job, pytest.mark.criu]

RUNTIMES = ["local", pytest.param("docker", marks=pytest.mark.docker)]


@pytest.fixture(scope="module")
def resumable(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A program that would go on from what it wrote, if it found it: its folder, and capsules from image and start."""
    home = tmp_path_factory.mktemp("resumable")
    out = home / "out"
    out.mkdir()
    (out / "settings.txt").write_text("rate 0.1\n")
    with recording(torchrun(PARTS / "resumable.py", out, 900, ranks=2), home, "--window", "all") as job:
        job.wait_for_step(0, 3)
        said = prismdbg("capture", job.run.path, "--rank", 0, "--window", 100, "-o", home / "image")
        assert said.code == 0, f"{said.err}\n{job.job.output[-2000:]}"
        assert job.end().code == 0
        said = prismdbg("capture", job.run.path, "--rank", 0, "--origin", "start", "-o", home / "start")
        assert said.code == 0, said.err
    (out / "settings.txt").write_text("rate 0.2\n")  # changed since
    (out / "another").mkdir()
    (out / "another" / "run.txt").write_text("of another run")
    return out, home / "image", home / "start"


def test_what_was_there_and_what_was_not_is_known(resumable: tuple[Path, Path, Path]) -> None:
    out, _, start = resumable
    rank = json.loads((start / "prismdbg" / "rank.json").read_text())
    assert str(out) in rank["folders"]
    assert {str(out / "later"), str(out / "later" / "state.pt")} <= set(rank["absent"])
    files = {entry["path"] for entry in json.loads((start / "prismdbg" / "files.json").read_text())["files"]}
    assert str(out / "settings.txt") in files
    assert str(PARTS / "resumable.py") in files
    assert str(out / "later" / "state.pt") not in files


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("origin", ["image", "start"])
def test_the_rank_finds_what_it_found(resumable: tuple[Path, Path, Path], origin: str, runtime: str) -> None:
    out, image, start = resumable
    capsule = image if origin == "image" else start
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    verdict = replay(capsule, runtime=runtime)
    assert_identical(verdict, capsule)
    if origin == "start":
        assert "rate 0.1" in verdict["output"] and "goes on from" not in verdict["output"]
        assert "found ['settings.txt']" in verdict["output"]
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
