"""A replay finds the files that were there at A, and none that the rank made only later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from chain import PARTS, assert_identical, prismdbg, recording, replay
from jobs import forked

pytestmark = [pytest.mark.job, pytest.mark.criu]

RUNTIMES = ["local", pytest.param("docker", marks=pytest.mark.docker)]


@pytest.fixture(scope="module")
def resumable(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A program that would go on from what it wrote, if it found it: its folder, and capsules from image and start."""
    home = tmp_path_factory.mktemp("resumable")
    out = home / "out"
    out.mkdir()
    (out / "settings.txt").write_text("rate 0.1\n")
    with recording(forked(PARTS / "resumable.py", out, 1500, ranks=2), home, "--window", "all") as job:
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


@pytest.fixture(scope="module", params=["native", "python"])
def overwritten(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A program that reads what an earlier run left and writes over it: its folder, and capsules of both ranks."""
    home = tmp_path_factory.mktemp("overwrites")
    state = home / "state"
    state.mkdir()
    torch.manual_seed(7)
    torch.save(torch.nn.Linear(16, 16).state_dict(), state / "model.pt")
    for name, text in (("state.json", '{"seed": 3}'), ("rate.txt", "0.25"), ("counter.txt", "12"), ("once.txt", "new")):
        (state / name).write_text(text)
    options = ["--window", "all", *(["--python-kernels"] if request.param == "python" else [])]
    with recording(forked(PARTS / "overwrites.py", state, ranks=2), home, *options) as job:
        assert job.end().code == 0
        capsules = [home / f"rank{rank}" for rank in range(2)]
        for rank, capsule in enumerate(capsules):
            said = prismdbg("capture", job.run.path, "--rank", rank, "--origin", "start", "-o", capsule)
            assert said.code == 0, said.err
    return state, capsules


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("rank", range(2))
def test_the_rank_reads_what_it_read_before_it_wrote_over_it(
    overwritten: tuple[Path, list[Path]], rank: int, runtime: str
) -> None:
    """Also where another rank wrote."""
    state, capsules = overwritten
    before = {path: path.read_bytes() for path in state.iterdir()}
    assert json.loads((capsules[rank] / "prismdbg" / "rank.json").read_text())["changed"] == []
    verdict = replay(capsules[rank], runtime=runtime)
    assert_identical(verdict, capsules[rank])
    assert "{'seed': 3} 0.25 12 new" in verdict["output"]
    assert {path: path.read_bytes() for path in state.iterdir()} == before


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_program_that_chooses_among_files_sees_all_of_them(tmp_path: Path, runtime: str) -> None:
    data, capsule = tmp_path / "data", tmp_path / "capsule"
    for number in range(40):
        folder = data / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(str(number))
    with recording(forked(PARTS / "chooses_files.py", data, ranks=2), tmp_path, "--window", "all") as job:
        assert job.end().code == 0
        said = prismdbg("capture", job.run.path, "--rank", 0, "--origin", "start", "-o", capsule)
        assert said.code == 0, said.err
    verdict = replay(capsule, runtime=runtime)
    assert_identical(verdict, capsule)
    assert "classes ['class0', 'class1'], 40 files" in verdict["output"]


@pytest.fixture(scope="module")
def holds_kernel_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capsule of a rank that holds files in /proc and /sys open."""
    home = tmp_path_factory.mktemp("holds")
    paths = ("/proc/self/status", "/proc/diskstats", "/sys/devices/system/cpu/online")
    with recording(forked(PARTS / "holds_kernel_files.py", 3000, *paths, ranks=2), home, "--window", "all") as job:
        job.wait_for_step(0, 3)
        said = prismdbg("capture", job.run.path, "--rank", 0, "-o", home / "image")
        assert said.code == 0, f"{said.err}\n{job.job.output[-2000:]}"
        assert job.end().code == 0
    return home / "image"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_rank_that_holds_files_of_the_kernel_is_replayed(holds_kernel_files: Path, runtime: str) -> None:
    """They are the kernel's in the replay's place: none is taken into the capsule, where it would be refused."""
    assert prismdbg("verify", holds_kernel_files).code == 0
    assert_identical(replay(holds_kernel_files, runtime=runtime), holds_kernel_files)


def test_a_rank_that_holds_what_no_replay_opens_is_not_captured(tmp_path: Path) -> None:
    """Reported at the capture, and not by the replay as an altered capsule."""
    held = forked(PARTS / "holds_kernel_files.py", 900, "/proc/zoneinfo", ranks=2)
    with recording(held, tmp_path, "--window", "all") as job:
        job.wait_for_step(0, 3)
        said = prismdbg("capture", job.run.path, "--rank", 0, "-o", tmp_path / "image")
        assert said.code != 0 and "/proc/zoneinfo" in said.err and "--origin start" in said.err
        assert not (tmp_path / "image").exists()
        assert job.end().code == 0
