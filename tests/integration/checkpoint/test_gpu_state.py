"""What a rank has on a GPU is in its checkpoint, and back on the GPU whatever becomes of who takes it.

NVIDIA's driver is a library of the tests (tests/fake_driver), and a GPU's device files those of /dev/null: the program
waits as long as its state is not where it should be. `make gpu` does the same on a GPU.
"""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chain import CLI, Recording, assert_identical, prismdbg, recording
from jobs import ROOT, forked, plain_environment

from prismdbg.capsule import layout
from prismdbg.checkpoint import gpu
from prismdbg.checkpoint.gpu import PART
from prismdbg.errors import FacilityError
from tests import fake_driver

pytestmark = [
    pytest.mark.job,
    pytest.mark.criu,
    pytest.mark.skipif(bool(why := fake_driver.why_not()), reason=why),
]
PROGRAM = Path(__file__).parents[1] / "programs" / "on_gpu.py"
REFUSAL = 801  # CUDA_ERROR_NOT_SUPPORTED
RUNNING, CHECKPOINTED = 0, 2


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with the library, while there are device files."""
    with fake_driver.devices():
        yield fake_driver.build(tmp_path_factory.mktemp("driver"))


@contextmanager
def job_on_gpu(driver: Path, home: Path, steps: int, *options: object, refuses: int = 0) -> Iterator[Recording]:
    words = [driver / fake_driver.NAME, steps, *([refuses] if refuses else [])]
    with recording(forked(PROGRAM, *words, ranks=2), home, *options, env=environment(driver)) as job:
        yield job


def environment(driver: Path) -> dict[str, str]:
    return plain_environment(LD_LIBRARY_PATH=str(driver))


def state(driver: Path, pid: int) -> int:
    found = ctypes.c_int(-1)
    ctypes.CDLL(str(driver / fake_driver.NAME)).cuCheckpointProcessGetState(pid, ctypes.byref(found))
    return found.value


@pytest.fixture(scope="module")
def captured(driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 1 of a job that went on."""
    home = tmp_path_factory.mktemp("captured")
    with job_on_gpu(driver, home, 1_000_000) as job:
        job.wait_for_step(1, 2)
        said = prismdbg("capture", job.run.path, "--rank", 1, "-o", home / "capsule", env=environment(driver))
        assert said.code == 0, said.err
        assert state(driver, job.pid(1)) == RUNNING
        job.wait_for_step(1, job.step(1) + 2)
        job.stop()
    return home / "capsule"


def test_the_capsule_names_who_used_a_gpu(captured: Path) -> None:
    part = json.loads((captured / layout.CHECKPOINT / PART).read_text())
    assert part == {"pids": [json.loads((captured / layout.RANK).read_text())["pid"]], "driver": "", "gpus": []}


def test_the_rank_has_its_state_on_the_gpu_again(captured: Path, driver: Path) -> None:
    said = prismdbg("replay", captured, "--json", env=environment(driver))
    assert said.code == 0, said.err
    assert_identical(said.json, captured)
    assert said.json["runtime"] == "local"


def test_a_place_without_the_driver_fails_at_once(captured: Path) -> None:
    said = prismdbg("replay", captured, "--runtime", "local")
    assert said.code == 4, said.err
    assert "NVIDIA's driver library cannot be loaded" in said.err


def test_containers_are_refused_before_anything_starts(captured: Path, driver: Path) -> None:
    said = prismdbg("replay", captured, "--runtime", "docker", env=environment(driver))
    assert said.code == 4 and "the checkpoint has the state of a GPU" in said.err


def test_the_debugger_goes_back_to_its_own_checkpoints(captured: Path, driver: Path) -> None:
    lines = ("next 2", "print loss", "checkpoint", "next 2", "print loss", "reverse-next 2", "print loss", "quit")
    typed = "".join(f"{line}\n" for line in lines)
    said = prismdbg("debug", captured, "--runtime", "local", typed=typed, env=environment(driver))
    assert said.code == 0, said.out + said.err
    answers = [part.partition("\n") for part in said.out.split("(prismdbg) ")[1:]]
    shown = [text for line, _, text in answers if line == "print loss"]
    assert len(shown) == 3 and shown[0] == shown[2] != shown[1], said.out
    assert re.search(r"checkpoint \d+ at ", {line: text for line, _, text in answers}["checkpoint"])


def test_a_driver_that_refuses_costs_the_job_nothing(driver: Path, tmp_path: Path) -> None:
    with job_on_gpu(driver, tmp_path, 1_000_000, refuses=REFUSAL) as job:
        job.wait_for_step(1, 2)
        capsule = tmp_path / "capsule"
        said = prismdbg("capture", job.run.path, "--rank", 1, "-o", capsule, env=environment(driver))
        assert said.code != 0 and not capsule.exists()
        assert f"cannot be saved: cuCheckpointProcessCheckpoint of process {job.pid(1)}: FAKE_ERROR_801" in said.err
        assert "--origin state" in said.err
        job.wait_for_step(1, job.step(1) + 2)
        job.stop()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_who_takes_it_is_killed_and_the_job_goes_on(driver: Path, tmp_path: Path, how: signal.Signals) -> None:
    with job_on_gpu(driver, tmp_path, 1_000_000) as job:
        job.wait_for_step(1, 2)
        line = [*CLI, "capture", str(job.run.path), "--rank", "1", "-o", str(tmp_path / "capsule")]
        with (tmp_path / "said").open("wb") as said:
            taking = subprocess.Popen(line, cwd=ROOT, env=environment(driver), stdout=said, stderr=said)
        try:
            job.wait_for(lambda: state(driver, job.pid(1)) == CHECKPOINTED, 60, "the state to leave the GPU")
            taking.send_signal(how)
            assert taking.wait(60) != 0
        finally:
            taking.kill()
            taking.wait()
        job.wait_for(lambda: state(driver, job.pid(1)) == RUNNING, 60, "the state to come back")
        job.wait_for_step(1, job.step(1) + 2)
        job.stop()


def test_what_was_left_half_way_is_put_right_by_the_next(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a machine that ended both the capture and who held the state for it."""
    library = ctypes.CDLL(str(driver / fake_driver.NAME))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    with job_on_gpu(driver, tmp_path, 1_000_000) as job:
        job.wait_for_step(1, 2)
        for half_way in ("cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint"):
            assert getattr(library, half_way)(job.pid(1), None) == 0
            with gpu.in_memory(job.pid(1), timeout_s=30) as part:
                assert part is not None and part.pids == (job.pid(1),)
                assert state(driver, job.pid(1)) == CHECKPOINTED
            assert state(driver, job.pid(1)) == RUNNING
            library.cuCheckpointProcessLock(job.pid(1), None)
        library.cuCheckpointProcessUnlock(job.pid(1), None)
        job.wait_for_step(1, job.step(1) + 2)
        job.stop()


def test_it_is_not_tried_where_the_memory_might_not_do(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setattr(gpu, "held_bytes", lambda pid: 1 << 50)
    with job_on_gpu(driver, tmp_path, 1_000_000) as job:
        job.wait_for_step(1, 2)
        with (
            pytest.raises(FacilityError, match=r"needs 1\.1 PiB of its machine's memory"),
            gpu.in_memory(job.pid(1), timeout_s=30),
        ):
            pytest.fail("it was tried")
        assert state(driver, job.pid(1)) == RUNNING
        job.stop()


def test_an_altered_capsule_names_no_other_process(captured: Path, driver: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(captured, copy)
    (copy / layout.CHECKPOINT / PART).write_text('{"pids": [1], "driver": "", "gpus": []}')
    assert prismdbg("replay", copy, env=environment(driver)).code == 3
    verdict = prismdbg("verify", copy, env=environment(driver))
    assert verdict.code == 3, verdict.out
