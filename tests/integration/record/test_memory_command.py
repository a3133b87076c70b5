"""`record --memory`, and `memory` of the run and of a capsule taken from it: a replay allocates as the rank did."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from chain import PARTS, Taken, prismdbg, recording
from jobs import torchrun

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.memory_format import Kind
from prismdbg.memory.live import live_at
from prismdbg.memory.trace import MemoryTrace, open_trace
from prismdbg.model.moment import Moment

pytestmark = pytest.mark.job

STEPS = 1200
KEPT_BYTES = 4
# What is gathered, in and out: gloo's threads may let it go a little later than the program does.
HELD_BY_BACKEND_BYTES = 4000 + 8000
LEAK = "kept.append(everyone[:1].clone())"
PROGRAM = PARTS / "leaks.py"


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    home = tmp_path_factory.mktemp("memory")
    with recording(torchrun(PROGRAM, str(STEPS), ranks=2), home, "--memory", "--window", "all") as job:
        job.wait_for_step(1, 5)
        said = prismdbg("capture", job.run.path, "--rank", 1, "--window", 3, "-o", home / "capsule")
        ended = job.end()
    assert ended.code == 0, ended.output[-3000:]
    return Taken(recording=job, ended=ended, said=(said,), capsule=home / "capsule")


@pytest.fixture(scope="module")
def recorded(taken: Taken) -> MemoryTrace:
    return open_trace(taken.recording.run.latest(1) / "memory")


def events(trace: MemoryTrace, begin: Moment, end: Moment) -> list[tuple[Kind, str, int, str]]:
    """Operators and the program's own allocations, by kind, moment, size and operator."""
    rows = range(trace.row_at(begin), trace.row_at(end))
    told = (Kind.OPERATOR, Kind.ALLOCATION, Kind.BEFORE)
    own = [row for row in rows if not trace.is_backend[row] and trace.kind[row] in told]
    sites = [trace.site_at(int(trace.site[row])) for row in own]
    return [
        (Kind(trace.kind[row]), str(trace.moment(row)), int(trace.size_bytes[row]), site.op)
        for row, site in zip(own, sites, strict=True)
    ]


def test_a_run_is_traced_from_its_start_and_only_its_ranks(taken: Taken) -> None:
    run = taken.recording.run
    assert len(list((run.path / "memory").iterdir())) == 2  # not the launcher's, not the helper processes'
    ends = [note for note in taken.recording.log(1).notes if note.kind == "memory_end"]
    assert len(ends) == 1 and "lost" not in ends[0].data
    assert ends[0].data["records"] > STEPS


def test_the_leak_is_the_difference_between_two_moments(taken: Taken, recorded: MemoryTrace) -> None:
    said = prismdbg("memory", taken.recording.run.path, "--rank", 1, "--diff", 100, 600, "--by", "stack", "--json")
    assert said.code == 0, said.err
    assert abs(said.json["growth_bytes"] - 500 * KEPT_BYTES) <= HELD_BY_BACKEND_BYTES
    line = 1 + next(i for i, text in enumerate(PROGRAM.read_text().splitlines()) if LEAK in text)
    largest = max(said.json["made"], key=lambda entry: int(entry["blocks"]))
    assert (largest["bytes"], largest["blocks"]) == (500 * KEPT_BYTES, 500)
    assert largest["label"].startswith(f"{PROGRAM}:{line} in main")
    assert len(live_at(recorded, Moment(600))) > 500


def test_what_the_backend_allocates_is_told_apart(recorded: MemoryTrace) -> None:
    backends = recorded.is_backend & (recorded.kind == Kind.ALLOCATION)
    assert int(backends.sum()) >= STEPS  # gloo stages every gather
    assert int(recorded.size_bytes[backends].max()) >= 2 * 4000
    own = {
        recorded.site_at(int(site)).outer_op
        for site in recorded.site[recorded.made[~recorded.is_backend[recorded.made]]]
    }
    assert not any(op.startswith("c10d::") for op in own)


def test_the_export_opens_as_a_snapshot(taken: Taken, tmp_path: Path) -> None:
    said = prismdbg("memory", taken.recording.run.path, "--export", tmp_path / "snapshot.pickle")
    assert said.code == 0, said.err
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())  # noqa: S301  written a line above
    assert len(snapshot["device_traces"][0]) > STEPS


@pytest.mark.criu
@pytest.mark.parametrize("runtime", ["local", pytest.param("docker", marks=pytest.mark.docker)])
def test_a_replay_allocates_as_the_recorded_rank_did(
    taken: Taken, recorded: MemoryTrace, tmp_path: Path, runtime: str
) -> None:
    assert taken.said[0].code == 0, taken.said[0].err
    said = prismdbg("memory", taken.capsule, "--runtime", runtime, "--keep", tmp_path / "trace", "--json")
    assert said.code == 0, said.err
    replayed = open_trace(tmp_path / "trace")
    manifest = Capsule.open(taken.capsule).manifest
    first, last = Moment(manifest.moment_a.step + 1), manifest.moment_b
    assert first < last
    expected = events(recorded, first, last)
    assert len(expected) > 50
    assert events(replayed, first, last) == expected
    difference = live_at(replayed, first).program_bytes - live_at(recorded, first).program_bytes
    assert abs(difference) <= HELD_BY_BACKEND_BYTES
    before = [
        replayed.allocation(int(row)) for row in live_at(replayed, first).rows if replayed.kind[row] == Kind.BEFORE
    ]
    assert any(block.site.own_frame is not None and block.size_bytes == KEPT_BYTES for block in before)


@pytest.mark.criu
def test_memory_is_the_same_where_a_place_is_reached_again(taken: Taken, tmp_path: Path) -> None:
    """Over checkpoints and back: the trace is cut to where the rank stands."""
    first = Capsule.open(taken.capsule).manifest.moment_a.step + 1
    lines = [
        "trace on",
        f"until {first}.1",
        "memory",
        "checkpoint",
        f"until {first + 1}.1.3",
        "memory",
        "reverse-step 5",
    ]
    lines += [f"until {first + 1}.1.3", "memory", f"goto {first}.1", "memory", "quit"]
    (tmp_path / "lines").write_text("\n".join(lines) + "\n")
    said = prismdbg("replay", taken.capsule, "--runtime", "local", "-x", tmp_path / "lines")
    assert said.code == 0, said.err
    live = [line for line in said.out.splitlines() if line.startswith("live ")]
    assert len(live) == 4, said.out
    assert live[0] == live[3]
    assert live[1] == live[2]
    assert live[0] != live[1]
