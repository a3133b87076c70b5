"""Emulated ranks against the same ranks of the real job: their logs, the peaks of their memory, where a cap ends them.

One file, so that each job is run once. All ranks of every kind of job are compared in `make bench` (`emulated_memory`);
here those that fit into a suite.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from chain import prismdbg
from emulated import (
    CHOSEN,
    JOBS,
    Pair,
    PairOf,
    allocated,
    assert_identical_peak,
    emulate,
    pair,
    peak_of,
    really,
    trace_of,
)
from jobs import recorded_by_command_line, torchrun

from prismdbg.capsule.log.events import RankLog
from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from prismdbg.memory.backend import modelled
from prismdbg.memory.refused import Refusal, refusals
from prismdbg.model.collective import Collective
from prismdbg.rank.tracing import tracer
from prismdbg.settings.mesh_axes import Axes

pytestmark = pytest.mark.job

SHARDED = [one for one in CHOSEN if "tp" in one[0]]
chosen, sharded = (
    pytest.mark.parametrize(("name", "ranks"), jobs, ids=[name for name, _ in jobs]) for jobs in (CHOSEN, SHARDED)
)


@pytest.fixture(scope="module")
def pair_of(new_session_folder: Callable[[str], Path]) -> PairOf:
    """A job as it really ran, and some of its ranks emulated."""
    if reason := tracer.unavailable(cache_dir()):
        pytest.skip(reason)

    @cache
    def made(name: str, ranks: tuple[int, ...]) -> Pair:
        return pair(name, ranks, new_session_folder(name))

    return made


# the log is the one of the real rank


def structure(log: RankLog, axes: Axes) -> list[tuple[Any, ...]]:
    """For every collective in order: axis, place in its sequence, what is called, and with what."""
    return [(axes.name_of(c.group, log.groups[c.group].ranks), c.identity.seq, *_call(c)) for c in log.collectives]


def _call(c: Collective) -> tuple[Any, ...]:
    return (c.moment, c.op, c.inputs, c.outputs, c.reduce_op, c.is_async, c.is_p2p, c.tag, c.root)


@chosen
def test_the_log_is_that_of_the_real_rank(name: str, ranks: tuple[int, ...], pair_of: PairOf) -> None:
    pair = pair_of(name, ranks)
    for rank in ranks:
        log, recorded = pair.logs(rank)
        assert structure(log, pair.axes) == structure(recorded, pair.axes), rank
        assert [c.identity for c in log.collectives] == [c.identity for c in recorded.collectives]
        assert log.groups.keys() == recorded.groups.keys()
        assert [s.step for s in log.steps] == [s.step for s in recorded.steps]


@sharded
def test_two_ranks_stand_for_all(name: str, ranks: tuple[int, int], pair_of: PairOf) -> None:
    pair = pair_of(name, ranks)
    known = [structure(pair.logs(rank)[0], pair.axes) for rank in ranks]
    for rank in range(pair.world):
        assert structure(pair.real.log(rank), pair.axes) in known, rank


# peaks


def test_two_real_runs_have_the_same_peaks(pair_of: PairOf, tmp_path: Path) -> None:
    first, second = pair_of("pipeline-4", (0, 1, 2, 3)).real, really("pipeline-4", tmp_path / "again")
    apart = [peak_of(first.run, rank).size_bytes - peak_of(second.run, rank).size_bytes for rank in range(4)]
    assert apart == [0] * 4  # sends and receives keep no thread of gloo's


@chosen
def test_the_programs_own_peak_is_that_of_the_real_rank(name: str, ranks: tuple[int, ...], pair_of: PairOf) -> None:
    pair = pair_of(name, ranks)
    for rank in ranks:
        assert_identical_peak(peak_of(pair.emulated, rank), peak_of(pair.real.run, rank))


# the backend's own


@sharded
def test_what_gloo_stages_for_a_model_is_as_the_emulated_ranks_calls_say(
    name: str, ranks: tuple[int, int], pair_of: PairOf
) -> None:
    pair = pair_of(name, ranks)
    for rank in ranks:
        log, _ = pair.logs(rank)
        model = modelled(log.collectives, log.groups, rank)
        assert model.all_bytes == sum(allocated(trace_of(pair.real.run, rank)).values()) > 0
        assert model.not_modelled == 0


def test_memory_says_it_apart_and_that_it_is_modelled(pair_of: PairOf) -> None:
    pair = pair_of("fsdp-tp-4", (0, 3))
    said = prismdbg("memory", pair.emulated.path, "--rank", 3, "--json")
    assert said.code == 0, said.err
    assert said.json["peak_bytes"] == peak_of(pair.real.run, 3).size_bytes
    assert said.json["backend_bytes"] == 0
    assert said.json["backend_modelled"]["at_once_bytes"] > 0
    text = prismdbg("memory", pair.emulated.path, "--rank", 3).out
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
