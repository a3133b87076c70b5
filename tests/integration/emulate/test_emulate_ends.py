"""However `emulate` and `plan` end: no process, no half a run, and an error whose advice can be followed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from chain import CLI, prismdbg
from emulated import PROGRAMS, emulate, python
from jobs import ROOT, plain_environment
from spawning import Spawn
from waiting import wait_for

pytestmark = pytest.mark.job

BOUND_S = 60.0


@pytest.mark.parametrize(
    ("program", "code", "named", "was_there"),
    [
        (["no-such-program"], 2, "", True),
        ([str(PROGRAMS / "emulated_steps.py")], 2, "", False),  # which is not executable
        ([sys.executable, "no-such-script.py"], 2, "", False),
        (python("emulated_raises.py"), 6, "ValueError: no data", True),
        (python("emulated_steps.py", 0, 0), 6, "before it issued a collective", False),
    ],
)
def test_a_start_that_failed_leaves_no_folder(
    program: list[str], code: int, named: str, was_there: bool, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    if was_there:
        run.mkdir()
    done = emulate(run, 4, "dp=4", program=program)
    assert done.returncode == code, done.stderr
    assert named in done.stderr and "try:" in done.stderr
    assert run.exists() is was_there
    assert not was_there or list(run.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "LOCAL_RANK 5 needs 6 GPUs; this machine has 1\nprismdbg: | try: emulate with --ranks-per-node 1"),
        (("--ranks-per-node", "1"), "it has a GPU"),
    ],
)
def test_a_rank_without_its_gpu_says_what_helps(options: tuple[str, ...], named: str, tmp_path: Path) -> None:
    done = emulate(tmp_path / "run", 8, "dp=8", "--ranks", "5", *options, program=python("emulated_on_gpu.py"))
    assert done.returncode == 6 and named in done.stderr, done.stderr


def test_what_a_rank_left_stays(tmp_path: Path) -> None:
    done = emulate(tmp_path / "run", 4, "dp=4", program=python("emulated_steps.py", 2, 7))
    assert done.returncode == 6, done.stderr
    assert "failed with code 7 in step 2" in done.stderr
    assert "the last lines that rank 0 printed:\nprismdbg: | last line of rank 0: -0.8\n" in done.stderr
    assert f"try: see its output in {tmp_path / 'run'}/output/0.txt; step through it" in done.stderr
    assert (tmp_path / "run" / "output" / "0.txt").read_text() == "last line of rank 0: -0.8\n"
    advice = re.search(r"prismdbg (debug .* --rank 0)", done.stderr)
    assert advice is not None and str(tmp_path / "run") in advice[1]
    said = prismdbg("status", tmp_path / "run")
    assert "rank 0 failed at" in said.err and "graph build" not in said.err


MISMATCH = python("emulated_mismatch.py")


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("missing", "rank 0 issues barrier (1.2, group world) at * where rank 1 issues all_reduce"),
        ("tail", "rank 0 issues all_reduce (3.1, group world) at *, which rank 1 never issues: it ended before that"),
        ("circle", "deadlock: ranks wait for each other"),
    ],
    ids=["missing", "tail", "circle"],
)
def test_ranks_that_would_hang_together_do_not_end_with_code_0(how: str, named: str, tmp_path: Path) -> None:
    done = emulate(tmp_path / "run", 2, "dp=2", "--ranks", "0,1", program=[*MISMATCH, how])
    assert done.returncode == 2, done.stderr
    assert re.search(re.escape(named).replace(r"\*", ".*"), done.stderr)
    assert "fidelity: 2 of 2 ranks ran" in done.stdout
    assert (tmp_path / "run" / "ranks" / "1").exists()


def test_a_program_that_decides_by_synthesized_values_is_said_to(tmp_path: Path) -> None:
    done = emulate(tmp_path / "run", 2, "dp=2", program=[*MISMATCH, "stops early"])
    assert done.returncode == 0, done.stderr
    doubt = r"it decides at (\S+):(\d+) by what it reads at \S+:(\d+) in <module>"
    found = re.search(doubt, done.stdout)
    assert found is not None
    lines = Path(found[1]).read_text().splitlines()
    assert (lines[int(found[3]) - 1].strip(), lines[int(found[2]) - 1].strip()) == (
        "loss = weight.sum().item()",
        'if HOW == "stops early" and loss < -1:',
    )


@pytest.mark.parametrize(("mesh", "code"), [("dp=4,tp=2", 0), ("tp=2,dp=4", 2)])
def test_a_mesh_that_is_not_the_programs_own_is_refused_with_the_one_that_fits(
    mesh: str, code: int, tmp_path: Path
) -> None:
    done = emulate(tmp_path / "run", 8, mesh, "--ranks", "5", program=python("emulated_mesh.py"))
    assert done.returncode == code, done.stderr
    assert ("the program's group dp is ranks 1, 3, 5, 7, but along dp of the mesh" in done.stderr) is bool(code)
    assert ("try: give --mesh dp=4,tp=2" in done.stderr) is bool(code)


def test_a_rank_that_was_killed_is_said_to(tmp_path: Path) -> None:
    done = emulate(tmp_path / "run", 4, "dp=4", program=python("emulated_raises.py", "SIGKILL"))
    assert done.returncode == 6
    assert "rank 0's program was killed by SIGKILL in step 0" in done.stderr
    assert "died at 0.1" in prismdbg("status", tmp_path / "run").err


def test_a_disk_without_room_leaves_no_folder(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        done = emulate(disk / "run", 4, "dp=4", program=python("emulated_steps.py", 2, 0))
        left = list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)
    assert done.returncode == 6 and "it left no log" in done.stderr and "a full disk" in done.stderr
    assert left == []


@pytest.mark.parametrize("command", ["emulate", "plan"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_one_leaves_nothing(
    command: str, number: signal.Signals, code: int, tmp_path: Path, spawn: Spawn
) -> None:
    (tmp_path / "tmp").mkdir()
    program, said = python("emulated_hang.py", tmp_path / "pid"), tmp_path / "said"
    output = ["-o", tmp_path / "run"] if command == "emulate" else []
    words = [*CLI, command, *output, "--world", 4, "--mesh", "dp=4", "--", *program]
    with said.open("w") as talk:
        started = spawn(
            *map(str, words), cwd=ROOT, env=plain_environment(TMPDIR=str(tmp_path / "tmp")), stdout=talk, stderr=talk
        )
    rank = psutil.Process(
        int(wait_for(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text(), BOUND_S, "it"))
    )
    started.send_signal(number)
    assert started.wait(BOUND_S) == code, said.read_text()
    assert not rank.is_running()
    assert "Traceback" not in said.read_text()
    assert not (tmp_path / "run").exists() and list((tmp_path / "tmp").glob("prismdbg*")) == []


def test_what_a_plan_tried_is_kept_where_there_is_something_to_see(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    environment = plain_environment(TMPDIR=str(tmp_path / "tmp"))
    failed = prismdbg("plan", "--mesh", "dp=4", "--", *python("emulated_steps.py", 1, 7), env=environment)
    assert failed.code == 6, failed.err
    advice = re.search(r"prismdbg debug (\S+) --rank 0", failed.err)
    assert advice is not None and f"prismdbg rm {advice[1]}" in failed.err
    assert prismdbg("status", advice[1]).code == 0
    assert prismdbg("rm", advice[1]).code == 0
    assert list((tmp_path / "tmp").glob("prismdbg*")) == []


def test_what_a_plan_tried_is_gone_where_there_is_nothing_to_see(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    environment = plain_environment(TMPDIR=str(tmp_path / "tmp"))
    failed = prismdbg("plan", "--mesh", "dp=4", "--", *python("emulated_steps.py", 0, 0), env=environment)
    assert failed.code == 6 and "kept for inspection" not in failed.err
    assert list((tmp_path / "tmp").glob("prismdbg*")) == []


def test_a_plan_prints_its_figures_alone(tmp_path: Path) -> None:
    planned = prismdbg("plan", "--json", "--mesh", "dp=4", "--", *python("emulated_steps.py", 2, 0))
    assert planned.code == 0, planned.err
    assert json.loads(planned.out)["ranks"] == [0]
    assert "last line of rank 0" not in planned.out


def test_ranks_that_are_needed_for_their_values_are_counted_before_they_start(tmp_path: Path) -> None:
    done = emulate(tmp_path / "run", 4, "pp=4", program=[sys.executable, str(PROGRAMS / "gpt_pipeline.py"), "1"])
    assert done.returncode == 0, done.stderr
    talk = done.stderr
    (counted,) = re.findall(r"ranks along pp need their neighbours' data: up to 4 of them run for it.*", talk)
    assert re.search(r", with about [1-9]\d* MiB of private memory each$", counted)
    assert talk.index("rank 0 (pp=0) of 4") < talk.index(counted) < talk.index("rank 1 (pp=1) of 4, because")
