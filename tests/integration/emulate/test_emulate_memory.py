"""What gloo stages, and the memory of emulated experts. Peaks and caps are in `test_emulated_as_real.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chain import prismdbg
from emulated import (
    PROGRAMS,
    allocated,
    assert_identical_peak,
    emulate,
    emulated,
    peak_of,
    python,
    trace_of,
)
from jobs import Recorded, record, recorded_by_command_line, torchrun

from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.memory.backend import modelled, staged
from prismdbg.memory.trace import open_trace
from prismdbg.rank.tracing import tracer

pytestmark = pytest.mark.job


@pytest.fixture(autouse=True, scope="module")
def _traced() -> None:
    if reason := tracer.unavailable(cache_dir()):
        pytest.skip(reason)


# the backend's own


def test_every_collective_stages_in_gloo_what_is_modelled(tmp_path: Path) -> None:
    real = record(torchrun(PROGRAMS / "staged.py", ranks=4), tmp_path / "run", native=True, window_steps=0, memory=True)
    assert real.ended.code == 0, real.ended.output
    for rank in range(4):
        log, trace = real.log(rank), trace_of(real.run, rank)
        expected = {(c.moment.step, c.moment.collective): staged(c, rank).all_bytes for c in log.collectives}
        named = {(c.moment.step, c.moment.collective): f"{c.op} {c.inputs}" for c in log.collectives}
        assert {named[at]: size for at, size in allocated(trace).items()} == {
            named[at]: size for at, size in expected.items() if size
        }
        model = modelled(log.collectives, log.groups, rank)
        assert model.not_modelled == 0
        assert model.at_once_bytes <= int(trace.backend_bytes.max())  # gloo may free late, when the next one has begun


# experts


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A real run of four ranks, each with one expert, with all that they received."""
    home = tmp_path_factory.mktemp("experts")
    command = torchrun(Path(python("emulated_experts.py")[-1]), ranks=4)
    real = recorded_by_command_line(command, home / "real", "--memory", "--window", "all")
    assert real.ended.code == 0, real.ended.output
    return real


def said_by(output: str, rank: int) -> list[dict[str, Any]]:
    said = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [entry for entry in said if entry["rank"] == rank]


def routed(out: Path, *options: object) -> list[dict[str, Any]]:
    program = python("emulated_experts.py")
    said = said_by(emulated(out, 4, "ep=4", "--ranks", 2, "--memory", *options, program=program), 2)
    assert len(said) == 3
    assert all(entry["finite"] for entry in said)  # nothing is left as it was
    return said


def test_tokens_arrive_as_an_earlier_run_recorded_it(experts: Recorded, tmp_path: Path) -> None:
    expected = said_by(experts.ended.output, 2)
    found = routed(tmp_path / "run", "--donor", experts.run.path)
    assert [entry["taken"] for entry in found] == [entry["taken"] for entry in expected]
    assert found[0]["given"] == expected[0]["given"]  # later ones follow from gradients that are made up


def test_with_every_value_of_the_earlier_run_the_rank_is_that_rank(experts: Recorded, tmp_path: Path) -> None:
    found = routed(tmp_path / "run", "--donor", experts.run.path, "--peers", "donor")
    assert found == said_by(experts.ended.output, 2)
    assert_identical_peak(peak_of(RunFolder((tmp_path / "run").resolve()), 2), peak_of(experts.run, 2))


def test_balanced_tokens_come_in_equal_shares(tmp_path: Path) -> None:
    for entry in routed(tmp_path / "run", "--peers", ":all_to_all_single=balanced"):
        assert entry["taken"] == [16] * 4


def test_without_a_donor_the_peers_that_send_the_counts_run_in_turn(experts: Recorded, tmp_path: Path) -> None:
    assert routed(tmp_path / "run") == said_by(experts.ended.output, 2)
    run = RunFolder((tmp_path / "run").resolve())
    assert [folder.name for folder in run.rank_folders()] == ["2"]
    assert routed(tmp_path / "again", "--donor", tmp_path / "run") == said_by(experts.ended.output, 2)


def test_a_traced_rank_is_replayed_for_a_trace_of_another_end(tmp_path: Path) -> None:
    run, kept = tmp_path / "run", tmp_path / "kept"
    routed(run, "--peers", ":all_to_all_single=balanced")
    said = prismdbg("memory", run, "--rank", 2, "--runtime", "local", "--until", "1.1", "--keep", kept, "--json")
    assert said.code == 0, said.err
    assert open_trace(kept).end < open_trace(run / "ranks/2/memory").end


def test_counts_that_are_synthesized_are_said_to_shape_what_follows(tmp_path: Path) -> None:
    options = ("-v", "--ranks", "0-3", "--peers", ":all_to_all_single=echo")
    done = emulate(tmp_path / "run", 4, "ep=4", *options, program=python("emulated_experts.py"))
    assert all(entry["taken"] == entry["given"] for rank in range(4) for entry in said_by(done.stdout, rank))
    assert "allocations are real\n" not in done.stdout
    assert "except sizes that depend on synthesized counts" in done.stdout
    assert "the counts that ranks received in all_to_all_single on world at" in done.stdout
    assert done.returncode == 0, done.stderr  # by the rule, what one sends is not what the other receives
    assert prismdbg("graph", "build", tmp_path / "run").code == 0
    said = prismdbg("graph", "simulate", tmp_path / "run").out
    assert "not reliable: sizes and memory: the counts that ranks received in" in said


def test_a_donor_of_another_size_is_refused_with_both_sizes(experts: Recorded, tmp_path: Path) -> None:
    options = ("--donor", experts.run.path, "--peers", ":all_to_all_single=donor")
    done = emulate(tmp_path / "run", 8, "ep=8", *options, program=python("emulated_experts.py"))
    assert done.returncode == 6
    assert "the donor's has 32 bytes, not 64" in done.stderr
