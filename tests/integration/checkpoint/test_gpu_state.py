"""What a rank has on a GPU is in its checkpoint, and back on the GPU whatever becomes of who takes it.

NVIDIA's driver is a library of the tests (tests/fake_driver), and a GPU's device files those of /dev/null: the program
waits as long as its state is not where it should be. `make gpu` does the same on a GPU.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from chain import CLI, Recording, altered, assert_identical, prismdbg, recording
from jobs import ROOT, forked, plain_environment
from waiting import wait_for

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import FileEntry
from prismdbg.checkpoint import gpu
from prismdbg.checkpoint.gpu_holder import PROGRAM as HOLDS
from prismdbg.checkpoint.gpu_part import PART
from prismdbg.errors import CheckpointError, FacilityError
from prismdbg.model.shipped import shipped
from tests import fake_driver

pytestmark = [
    pytest.mark.job,
    pytest.mark.criu,
    pytest.mark.skipif(bool(why := fake_driver.why_not()), reason=why),
]
PROGRAM = Path(__file__).parents[1] / "programs" / "on_gpu.py"
REFUSAL = 801  # CUDA_ERROR_NOT_SUPPORTED
RUNNING, LOCKED, CHECKPOINTED, NO_STATE = 0, 1, 2, -1


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
    return plain_environment(LD_LIBRARY_PATH=str(driver), PATH=f"{driver}:{os.environ['PATH']}")


def use(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(driver).items():
        if name in ("LD_LIBRARY_PATH", "PATH"):
            monkeypatch.setenv(name, value)


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
    said = prismdbg("debug", captured, typed=typed, env=environment(driver))  # in the default runtime
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
    use(driver, monkeypatch)
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
    use(driver, monkeypatch)
    monkeypatch.setattr(gpu, "held_bytes", lambda pid: 1 << 50)
    with job_on_gpu(driver, tmp_path, 1_000_000) as job:
        job.wait_for_step(1, 2)
        with (
            pytest.raises(FacilityError, match=r"needs 1\.1 PiB of host memory"),
            gpu.in_memory(job.pid(1), timeout_s=30),
        ):
            pytest.fail("it was tried")
        assert state(driver, job.pid(1)) == RUNNING
        job.stop()


def with_part(captured: Path, copy: Path, **part: object) -> Path:
    """A copy whose part is another one; its manifest agrees, as if it had been captured so."""
    altered(captured, copy)
    name = f"{layout.CHECKPOINT}/{PART}"
    data = json.dumps(json.loads((copy / name).read_text()) | part).encode()
    (copy / name).unlink()
    (copy / name).write_bytes(data)
    manifest = Capsule.open(copy).manifest
    files = {**manifest.files, name: FileEntry(len(data), hashlib.sha256(data).hexdigest())}
    (copy / layout.MANIFEST).write_bytes(replace(manifest, files=files).to_bytes())
    return copy


def test_an_altered_capsule_names_no_other_process(captured: Path, driver: Path, tmp_path: Path) -> None:
    copy = with_part(captured, tmp_path / "copy", pids=[1])
    for command in ("replay", "verify"):
        said = prismdbg(command, copy, env=environment(driver))
        assert said.code == 3 and "names processes that are not in it" in said.out + said.err, said.out + said.err


def test_another_driver_is_named_before_anything_starts(captured: Path, driver: Path, tmp_path: Path) -> None:
    said = prismdbg("replay", with_part(captured, tmp_path / "copy", driver="580.1"), env=environment(driver))
    assert said.code == 4 and "saved with NVIDIA's driver 580.1; this machine has none" in said.err


@pytest.fixture
def lone(driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lone]:
    """A process with the driver and a device, and no job."""
    use(driver, monkeypatch)
    lines = f"""
import ctypes, os, sys
from pathlib import Path
driver = ctypes.CDLL("{driver / fake_driver.NAME}")
device = Path("/dev/nvidia0").open()
print("ready", flush=True)
for line in sys.stdin:
    name, _, value = line.strip().partition("=")
    if name == "fork":
        child = os.fork()
        if child == 0:
            sys.stdin.read()
    else:
        ctypes.c_int.in_dll(driver, name).value = int(value)
    print("done", flush=True)
"""
    command = [sys.executable, "-c", lines]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield Lone(process)
        for child in psutil.Process(process.pid).children():
            child.kill()
        process.kill()


@dataclass(frozen=True)
class Lone:
    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


def test_a_state_that_does_not_come_back_is_no_success(lone: Lone, driver: Path) -> None:
    with pytest.raises(CheckpointError, match="was not moved back to its GPU: cuCheckpointProcessUnlock"):  # noqa: SIM117
        with gpu.in_memory(lone.pid, timeout_s=30):
            lone.tell(f"fake_keeps={REFUSAL}")
    assert state(driver, lone.pid) == LOCKED
    lone.tell("fake_keeps=0")
    with gpu.in_memory(lone.pid, timeout_s=30):
        pass
    assert state(driver, lone.pid) == RUNNING


def test_a_refusal_that_leaves_it_locked_is_told_with_both_reasons(lone: Lone, driver: Path) -> None:
    lone.tell(f"fake_refuses={REFUSAL}")
    lone.tell("fake_keeps=999")
    with pytest.raises(CheckpointError, match="was not moved back"), gpu.in_memory(lone.pid, timeout_s=30):
        pytest.fail("it was refused")
    assert state(driver, lone.pid) == LOCKED


def test_who_is_stopped_holds_it_for_a_bounded_time(lone: Lone, driver: Path) -> None:
    """As a capture that Ctrl-Z stopped. What it saved then is no checkpoint."""
    with (
        pytest.raises(CheckpointError, match="before its checkpoint was complete"),
        gpu.in_memory(lone.pid, timeout_s=2),
    ):
        assert state(driver, lone.pid) == CHECKPOINTED
        wait_for(lambda: state(driver, lone.pid) == RUNNING, 20, "the state to come back without being asked")


def test_a_forked_child_with_its_parents_gpu_is_named_and_nothing_is_moved(lone: Lone, driver: Path) -> None:
    child = ctypes.CDLL(str(driver / fake_driver.NAME))
    lone.tell("fork")
    (forked_one,) = psutil.Process(lone.pid).children()
    lone_state = ctypes.c_int(NO_STATE)  # as NVIDIA's driver says of such a child
    address = _address(forked_one.pid, "fake_state", child)
    with Path(f"/proc/{forked_one.pid}/mem").open("r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(lone_state)
    with pytest.raises(CheckpointError, match=rf"process {forked_one.pid} has a GPU open but no state there"):  # noqa: SIM117
        with gpu.in_memory(lone.pid, timeout_s=30):
            pytest.fail("it was tried")
    assert state(driver, lone.pid) == RUNNING


def _address(pid: int, name: str, library: ctypes.CDLL) -> int:
    """Of a variable of the driver in another process."""

    def base(lines: str) -> int:
        line = next(line for line in lines.splitlines() if line.endswith(fake_driver.NAME) and " 00000000 " in line)
        return int(line.partition("-")[0], 16)

    here = ctypes.addressof(ctypes.c_int.in_dll(library, name)) - base(Path("/proc/self/maps").read_text())
    return base(Path(f"/proc/{pid}/maps").read_text()) + here


def test_the_next_waits_until_the_last_has_given_it_back(lone: Lone, driver: Path) -> None:
    """Who took it was killed; its helper still moves the state back."""
    alone = os.open(f"/proc/{lone.pid}", os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(alone, fcntl.LOCK_EX)
    try:
        with pytest.raises(CheckpointError, match="another process still moves the state"):  # noqa: SIM117
            with gpu.in_memory(lone.pid, timeout_s=2):
                pytest.fail("both hold it")
    finally:
        os.close(alone)
    with gpu.in_memory(lone.pid, timeout_s=30) as part:
        assert part is not None


def test_nobody_says_how_much_there_is(lone: Lone, driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FacilityError, match="nvidia-smi is missing or fails"), gpu.in_memory(lone.pid, timeout_s=30):
        pytest.fail("it was tried")


def test_a_process_with_the_library_and_no_device_is_saved_as_any_other(driver: Path, tmp_path: Path) -> None:
    """This command does not find the library. A file that is mapped may have any name."""
    odd = tmp_path / os.fsdecode(b"caf\xe9.bin")
    odd.write_bytes(bytes(4096))
    lines = f"""
import ctypes, mmap, os, sys
driver = ctypes.CDLL("{driver / fake_driver.NAME}")
file = os.open({os.fsencode(odd)!r}, os.O_RDONLY)
mapped = mmap.mmap(file, 0, prot=mmap.PROT_READ)
print("ready", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", lines], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        with gpu.in_memory(process.pid, timeout_s=30) as part:
            assert part is None
        process.kill()


VIEW = """
import os, sys
from pathlib import Path
sys.path.append(sys.argv[1])
import gpu_state
from syscalls import mount
folder = Path(sys.argv[2])
view = gpu_state.kept_view()
mount("prismdbg", str(folder), "tmpfs", 0)
(folder / "library").write_text("the rank's")
def look():
    raise gpu_state.GpuError((folder / "library").read_text() + ", " + Path("/proc/self/stat").read_text().split()[0])
for seen in (view, None):
    try:
        gpu_state.in_child(look, 10, seen)
    except gpu_state.GpuError as error:
        print(error)
"""


def test_what_the_library_opens_is_this_machines(tmp_path: Path) -> None:
    """Also what it finds in /proc is of the rank's PID namespace, whose second process it is."""
    (tmp_path / "library").write_text("this machine's")
    line = ["unshare", "--pid", "--fork", "--mount", sys.executable, "-I", "-S", "-c", VIEW]
    said = subprocess.run(
        [*line, str(shipped(HOLDS).parent), str(tmp_path)], capture_output=True, text=True, timeout=30, check=True
    )
    first, second = said.stdout.splitlines()
    assert first == "this machine's, 2" and second.startswith("the rank's, "), said.stdout
