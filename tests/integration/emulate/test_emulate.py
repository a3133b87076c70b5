"""One real rank of a large world, alone: everything works off the root, and its log is the one of the real rank."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from emulated import PROGRAMS, emulate, emulated, log_of, printed, python
from jobs import EXAMPLES, forked, recorded_by_command_line
from tour import PHASES

from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model import synthesis
from prismdbg.model.collective import State

pytestmark = pytest.mark.job

OFF_ROOT = (37, 63)

# everything works off the root


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """What came of each call on ranks 37 and 63 of 64, and on the ranks that were needed for their values."""
    home = tmp_path_factory.mktemp("calls")
    asked = ",".join(map(str, OFF_ROOT))
    program = python("emulated_calls.py", "2,4,8", home, asked)
    said: dict[int, dict[str, Any]] = {}
    for line in emulated(home / "run", 64, "pp=2,dp=4,tp=8", "--ranks", asked, program=program).splitlines():
        entry = json.loads(line)
        said.setdefault(entry["rank"], {})[entry["call"]] = entry["value"]
    for rank in OFF_ROOT:
        log = log_of(home / "run", rank)
        assert all(c.synthesized and c.state is State.COMPLETED for c in log.collectives)
        assert all(c.fingerprint is None for c in log.collectives)  # values stand on assumptions
        assert not any(c.sent_nonfinite or c.received_nonfinite for c in log.collectives)
        (made,) = (note.data for note in log.notes if note.kind == "synthesized")
        assert sum(row["count"] for row in made["rows"]) >= len(log.collectives)  # and those on its way out
        assert {row["how"] for row in made["rows"]} >= {"echo", "donor", "noise"}
    assert [folder.name for folder in RunFolder((home / "run").resolve()).rank_folders()] == ["37", "63"]
    return said


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("ddp", [2.0] * 4),
        ("ddp_over_the_world", [2.0] * 4),
        ("fsdp2", [16, 64]),
        ("garbage", True),
        ("barriers", "passed"),
        ("fsdp1", True),
        ("subgroups", 808),
        ("pipeline", True),
        ("store", ["of rank 0", "yes", 64]),
        ("thousands_of_groups", 8),
    ],
)
def test_it_works_off_the_root(calls: dict[int, dict[str, Any]], call: str, value: Any) -> None:
    assert {rank: calls[rank][call] for rank in OFF_ROOT} == dict.fromkeys(OFF_ROOT, value)


@pytest.mark.parametrize("rank", OFF_ROOT)
def test_objects_and_files_are_those_of_the_rank(calls: dict[int, dict[str, Any]], rank: int) -> None:
    said = calls[rank]
    assert said["objects"] == [{"by": 0}, f"for {rank}", rank]
    assert said["gathered_objects"] == ([{"by": 63}, {"by": 0}] if rank == 63 else None)
    assert said["sent_objects"] == f"to {rank}"
    assert said["checkpoint"] == [f"__{rank}_0.distcp"]


@pytest.mark.parametrize("rank", OFF_ROOT)
def test_a_distributed_tensor_has_no_uninitialised_part(calls: dict[int, dict[str, Any]], rank: int) -> None:
    (part,), whole = calls[rank]["dtensor"]
    assert abs(part) < 1.0  # made up: rank 32 has the value, and nobody asked for it
    assert whole == [0.0, 1.0] or all(abs(v) < 1.0 for v in whole)


def test_init_of_one_rank_of_8192_takes_seconds_and_little_memory(tmp_path: Path) -> None:
    program = python("emulated_init.py")
    spent = json.loads(emulated(tmp_path / "8192", 8192, "pp=16,dp=64,tp=8", "--ranks", 4133, program=program))
    assert spent["seconds"] <= 10.0
    assert spent["bytes"] <= 500e6


def test_every_kind_of_rendezvous_is_virtual(tmp_path: Path) -> None:
    program = python("emulated_rendezvous.py", tmp_path / "rendezvous")
    out = emulated(tmp_path / "run", 8192, "pp=16,dp=64,tp=8", "--ranks", 8191, program=program)
    assert out.strip() == str(dict.fromkeys(("environment", "tcp", "file", "store", "by device"), True))


def test_a_distributed_checkpoint_of_8192_ranks_is_saved_and_says_what_it_lacks(tmp_path: Path) -> None:
    program = python("emulated_checkpoint.py", "16,64,8", tmp_path / "saved")
    done = emulate(tmp_path / "run", 8192, "pp=16,dp=64,tp=8", "-v", "--ranks", 4133, program=program)
    assert done.returncode == 0, done.stderr
    said = {entry["rank"]: entry for entry in map(json.loads, printed(done).splitlines())}
    assert said[4133]["files"] == ["__4133_0.distcp"]
    assert "a distributed checkpoint of 8192 ranks has" in done.stderr
    assert "of 8 of 8 tensors, the shards of emulated peers are missing" in done.stderr


def test_the_tour_of_torch_distributed_comes_to_its_end(tmp_path: Path) -> None:
    """All but joining uneven inputs, where what is called next depends on the values that peers sent."""
    phases = " ".join(phase.__name__ for phase in PHASES if phase.__name__ != "ddp_join")
    program = [sys.executable, "-W", "ignore", str(PROGRAMS.parent / "tour.py")]
    emulated(tmp_path / "run", 4, "dp=2,tp=2", "--ranks", "1,2", program=program, TOUR_PHASES=phases)
    for rank in (1, 2):
        log = log_of(tmp_path / "run", rank)
        assert len({c.op for c in log.collectives}) >= 17
        assert all(c.state is State.COMPLETED and c.synthesized for c in log.collectives)


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_the_workers_that_a_rank_starts_are_no_ranks(start: str, tmp_path: Path) -> None:
    out = emulated(tmp_path / "run", 64, "dp=64", "--ranks", "37", program=python("loaders.py", start))
    squares = sum(index * index for index in range(8))
    assert out.split() == ["result", "37", str(float(64 * squares))]
    assert len(log_of(tmp_path / "run", 37).collectives) == 5


@pytest.mark.parametrize("program", [("spawned.py",), ("forks_ranks.py", "torch")])
def test_a_program_that_starts_its_ranks_itself_is_refused(program: tuple[str, ...], tmp_path: Path) -> None:
    name, *how = program
    done = emulate(tmp_path / "run", 2, "dp=2", program=python(name, tmp_path / "out", *how))
    assert done.returncode == 6, done.stderr
    assert "the emulated program starts its ranks itself" in done.stderr


# where it ends


def test_a_limit_of_steps_ends_the_program_at_the_boundary(tmp_path: Path) -> None:
    """It is given in torchrun's form, which is taken as it is."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "64", "--nproc-per-node", "8"]
    program = [*launcher, str(PROGRAMS / "emulated_steps.py"), "5", "3"]
    out = emulated(tmp_path / "run", 512, "dp=64,tp=8", "--ranks", "9", "--steps", 2, program=program)
    assert "last line" not in out
    log = log_of(tmp_path / "run", 9)
    assert [s.step for s in log.steps] == [1, 2]
    assert len(log.collectives) == 2
    notes = {note.kind: note.data for note in log.notes}
    assert notes["exit"]["code"] == 0
    (row,) = notes["synthesized"]["rows"]
    assert row == {"axis": "world", "collective": "all_reduce", "how": "echo", "count": 2, "bytes": 32}


@pytest.mark.parametrize(
    ("options", "arguments", "named", "code"),
    [
        (["--steps", "5"], (3, 0), "ended after 3 of 5 steps", 6),
        (["--ranks", "512"], (1, 0), "rank 512", 2),
        (["--peers", "pp=zeros"], (1, 0), "'pp'", 2),
        (["--world", "500"], (1, 0), "and the world has", 2),
    ],
)
def test_what_goes_wrong_is_named_with_the_fix(
    options: list[str], arguments: tuple[int, int], named: str, code: int, tmp_path: Path
) -> None:
    done = emulate(tmp_path / "run", 512, "dp=64,tp=8", *options, program=python("emulated_steps.py", *arguments))
    assert done.returncode == code, done.stderr
    assert named in done.stderr
    assert "try:" in done.stderr


def test_the_example_has_batches_for_a_world_that_is_larger_than_its_corpus(tmp_path: Path) -> None:
    program = [sys.executable, str(EXAMPLES / "train_ddp.py"), "--size", "tiny"]
    emulated(tmp_path / "run", 8192, "dp=8192", "--ranks", 8191, "--steps", 2, program=program)
    assert [mark.step for mark in log_of(tmp_path / "run", 8191).steps] == [1, 2]


@pytest.mark.parametrize(("policy", "weight"), [("echo", "-51.2"), ("zeros", "0.0")])
def test_policies_decide_what_is_received(policy: str, weight: str, tmp_path: Path) -> None:
    program = python("emulated_steps.py", 1, 0)
    said = emulated(tmp_path / "run", 512, "dp=64,tp=8", "--peers", f"world={policy}", program=program)
    assert said.strip() == f"last line of rank 0: {weight}"


def test_values_beyond_the_budget_are_noise_like_them_and_that_is_said(tmp_path: Path) -> None:
    options = ("--ranks", "0,1", "--donor-bytes", "8")
    done = emulate(tmp_path / "run", 2, "dp=2", *options, program=python("emulated_donor.py"))
    assert done.returncode == 0, done.stderr
    assert "16 bytes sent by rank 0 do not fit into --donor-bytes" in done.stderr
    made = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and "inject" not in path.parts]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o600}
    (sent,) = (note.data["sent"] for note in log_of(tmp_path / "run", 0).notes if note.kind == "synthesized")
    assert sent["beyond_budget_bytes"] == 16 and sent["control_bytes"] >= 16
    (received,) = (c for c in log_of(tmp_path / "run", 1).collectives if c.name == "recv")
    assert received.made == synthesis.NOISE_LIKE


def test_an_earlier_run_says_what_peers_of_another_world_send(tmp_path: Path) -> None:
    program = PROGRAMS / "emulated_donor.py"
    real = recorded_by_command_line(forked(program, ranks=2), tmp_path / "real", "--window", "all")
    assert real.ended.code == 0, real.ended.output
    out = emulated(
        tmp_path / "run",
        64,
        "dp=64",
        *("--ranks", 37, "--donor", tmp_path / "real", "--peers", "world:recv=donor"),
        program=[sys.executable, str(program)],
    )
    assert out.splitlines() == ["rank 37 [11, 12] [7.0, 7.0, 7.0, 7.0]"]  # nobody else had to run
