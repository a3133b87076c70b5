"""Memory of an emulated rank against the real one: peaks, the cap, the backend's buffers, tokens sent to experts.

All ranks of every kind of job are compared in `make bench` (`emulated_memory`); here those that fit into a suite.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chain import prismdbg
from emulated import (
    CHOSEN,
    JOBS,
    PROGRAMS,
    PairOf,
    assert_identical_peak,
    emulate,
    emulated,
    peak_of,
    python,
    really,
    trace_of,
)
from jobs import Recorded, record, recorded_by_command_line, torchrun

from prismdbg.capsule.memory_format import Kind
from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from prismdbg.memory.backend import modelled, staged
from prismdbg.memory.refused import Refusal, refusals
from prismdbg.memory.trace import MemoryTrace
from prismdbg.rank.tracing import tracer

pytestmark = pytest.mark.job


@pytest.fixture(autouse=True, scope="module")
def _traced() -> None:
    if reason := tracer.unavailable(cache_dir()):
        pytest.skip(reason)


# peaks


def test_two_real_runs_have_the_same_peaks(pair_of: PairOf, tmp_path: Path) -> None:
    first, second = pair_of("pipeline-4", (0, 1, 2, 3)).real, really("pipeline-4", tmp_path / "again")
    apart = [peak_of(first.run, rank).size_bytes - peak_of(second.run, rank).size_bytes for rank in range(4)]
    assert apart == [0] * 4  # sends and receives keep no thread of gloo's


@pytest.mark.parametrize(("name", "ranks"), CHOSEN)
def test_the_programs_own_peak_is_that_of_the_real_rank(name: str, ranks: tuple[int, ...], pair_of: PairOf) -> None:
    pair = pair_of(name, ranks)
    for rank in ranks:
        assert_identical_peak(peak_of(pair.emulated, rank), peak_of(pair.real.run, rank))


# the backend's own


def allocated(trace: MemoryTrace) -> dict[tuple[int, int], int]:
    """By step and collective, what the backend allocated there."""
    rows = trace.made[trace.is_backend[trace.made] & (trace.kind[trace.made] == Kind.ALLOCATION)]
    found: dict[tuple[int, int], int] = {}
    for row in rows.tolist():
        at = int(trace.step[row]), int(trace.collective[row])
        found[at] = found.get(at, 0) + int(trace.size_bytes[row])
    return found


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


def test_what_gloo_stages_for_a_model_is_as_the_emulated_ranks_calls_say(pair_of: PairOf) -> None:
    pair = pair_of("fsdp-tp-8", (0, 5))
    for rank in (0, 5):
        log, _ = pair.logs(rank)
        model = modelled(log.collectives, log.groups, rank)
        assert model.all_bytes == sum(allocated(trace_of(pair.real.run, rank)).values()) > 0
        assert model.not_modelled == 0


def test_memory_says_it_apart_and_that_it_is_modelled(pair_of: PairOf) -> None:
    pair = pair_of("fsdp-tp-8", (0, 5))
    said = prismdbg("memory", pair.emulated.path, "--rank", 5, "--json")
    assert said.code == 0, said.err
    assert said.json["peak_bytes"] == peak_of(pair.real.run, 5).size_bytes
    assert said.json["backend_bytes"] == 0
    assert said.json["backend_modelled"]["at_once_bytes"] > 0
    text = prismdbg("memory", pair.emulated.path, "--rank", 5).out
    assert "backend" in text and "modelled: " in text


# the cap


def refused_by(run: RunFolder) -> Iterator[tuple[int, Refusal]]:
    """The first refusal of every rank that met one."""
    for folder in run.rank_folders():
        rank = int(folder.name.partition(".")[0])
        if found := refusals(trace_of(run, rank)):
            yield rank, found[0]


def told(refusal: Refusal) -> tuple[Any, ...]:
    site = refusal.site
    return refusal.moment, refusal.size_bytes, refusal.held_bytes, site.op, site.outer_op, site.module


@pytest.mark.parametrize("name", ["ddp-4", "pipeline-4"])
def test_under_a_cap_the_emulated_rank_fails_where_the_real_one_does(
    name: str, pair_of: PairOf, tmp_path: Path
) -> None:
    world, mesh, program = JOBS[name]
    pair = pair_of(name, (0, 1, 2, 3))
    cap = max(peak_of(pair.real.run, rank).size_bytes for rank in range(world)) - 1
    command = torchrun(Path(program[0]), *program[1:], ranks=world)
    real = recorded_by_command_line(command, tmp_path / "real", "--memory-cap", str(cap), "--trigger", "oom")
    assert real.ended.code != 0
    assert "torch.OutOfMemoryError: DefaultCPUAllocator: can't allocate memory" in real.ended.output
    rank, expected = next(refused_by(real.run))

    options = ("--memory-cap", cap, "--ranks", rank)
    done = emulate(tmp_path / "run", world, mesh, *options, program=[sys.executable, *program])
    assert done.returncode == 6, done.stderr
    for part in (f"--memory-cap of {cap} bytes", f"you tried to allocate {expected.size_bytes} bytes"):
        assert part in done.stderr
    assert f"at {expected.moment}, in {expected.site.op}" in done.stderr
    assert f"prismdbg memory {tmp_path / 'run'} --rank {rank}" in done.stderr
    ((_, found),) = refused_by(RunFolder((tmp_path / "run").resolve()))
    assert told(found) == told(expected)
    assert found.site.frames == expected.site.frames != ()

    (incident,) = read_json(real.run.supervisor_json)["incidents"]
    assert incident["kind"] == "oom"
    said = prismdbg("memory", real.run.path, "--rank", rank)
    assert "cap reached" in said.out and str(expected.moment) in said.out


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


def test_counts_that_are_synthesized_are_said_to_shape_what_follows(tmp_path: Path) -> None:
    options = ("--ranks", "0-3", "--peers", ":all_to_all_single=echo")
    done = emulate(tmp_path / "run", 4, "ep=4", *options, program=python("emulated_experts.py"))
    assert all(entry["taken"] == entry["given"] for rank in range(4) for entry in said_by(done.stdout, rank))
    assert "allocations are real" not in done.stdout
    assert "for sizes that follow from synthesized counts" in done.stdout
    assert "the counts that ranks received in all_to_all_single on world at" in done.stdout
    assert done.returncode == 0, done.stderr  # by the rule, what one sends is not what the other receives
    assert prismdbg("graph", "build", tmp_path / "run").code == 0
    said = prismdbg("graph", "simulate", tmp_path / "run").out
    assert "do not conclude: that sizes and memory are the real job's: the counts that ranks received in" in said


def test_a_donor_of_another_size_is_refused_with_both_sizes(experts: Recorded, tmp_path: Path) -> None:
    options = ("--donor", experts.run.path, "--peers", ":all_to_all_single=donor")
    done = emulate(tmp_path / "run", 8, "ep=8", *options, program=python("emulated_experts.py"))
    assert done.returncode == 6
    assert "the donor's has 32 bytes, not 64" in done.stderr
