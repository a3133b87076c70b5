"""The example that runs out of memory, as its walkthrough has it: what leaked over a step, who keeps it, a fix."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import INCIDENTS, Taken, assert_identical, prismdbg, recording, replay
from jobs import torchrun

from prismdbg.capsule.manifest import IncidentKind, Origin
from prismdbg.jobs.injection import cache_dir
from prismdbg.memory.curve import curve
from prismdbg.memory.live import live_at
from prismdbg.memory.trace import open_trace
from prismdbg.model.moment import Moment
from prismdbg.rank.tracing import tracer

pytestmark = pytest.mark.job

TRAIN = INCIDENTS / "memory" / "train.py"
LEAK = "curve.append(loss_of(model, *held_out))"
CAP_BYTES = 64 << 20
A_STEP = ("20.2", "21.2")


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    if reason := tracer.unavailable(cache_dir()):
        pytest.skip(reason)
    options = ("--window", "all", "--memory", "--memory-cap", CAP_BYTES)
    with recording(torchrun(TRAIN, ranks=2), tmp_path_factory.mktemp("oom"), *options) as job:
        ended = job.end()
        assert len(job.capsules) == 1, ended.output[-3000:]
        return Taken(recording=job, ended=ended, capsule=job.capsules[0])


def line_of_the_leak() -> str:
    (number,) = (n for n, text in enumerate(TRAIN.read_text().splitlines(), start=1) if LEAK in text)
    return f"train.py:{number}"


def test_it_is_raised_where_nothing_is_wrong(taken: Taken) -> None:
    assert taken.ended.code == 1
    manifest = taken.manifest
    assert (manifest.rank, manifest.incident.kind, manifest.origin) == (0, IncidentKind.OUT_OF_MEMORY, Origin.START)
    assert manifest.incident.moment == Moment(22)
    said = prismdbg("why", taken.recording.run.path)
    first = said.out.splitlines()[0]
    error = "OutOfMemoryError: DefaultCPUAllocator: can't allocate memory: "
    assert first.startswith(f"certain: rank 0 raised at 22.0: {error}") and len(first) < 240
    assert "loss = loss_of(ddp, *next(batches))" in said.out and LEAK not in said.out


def test_what_leaked_over_a_step_names_the_line(taken: Taken) -> None:
    run = taken.recording.run.path
    said = prismdbg("memory", run, "--rank", 0, "--diff", *A_STEP, "--by", "stack", "--top", 100, "--json").json
    assert 2 << 20 < said["growth_bytes"] < 3 << 20
    leaked = [entry for entry in said["made"] if f" < {line_of_the_leak()} < " in entry["label"]]
    assert sum(entry["bytes"] for entry in leaked) == pytest.approx(said["growth_bytes"], rel=0.01)
    other = prismdbg("memory", run, "--rank", 1, "--diff", *A_STEP, "--json").json
    assert other["growth_bytes"] == 0, "only rank 0 keeps something"


def test_the_curve_rises_from_step_to_step(taken: Taken) -> None:
    trace = open_trace(taken.recording.run.latest(0) / "memory")
    ends = [live_at(trace, Moment(step, 1)).program_bytes for step in range(2, 22)]
    assert ends == sorted(set(ends))
    highest = int(curve(trace, points=100).high_bytes.max())
    assert CAP_BYTES - (1 << 20) < highest <= CAP_BYTES


def test_the_rank_alone_comes_to_the_same_allocation_and_shows_what_it_keeps(taken: Taken) -> None:
    lines = (
        "continue",
        "print len(curve)",
        "print curve[-1]",
        "reverse-next",
        f"memory diff {' '.join(A_STEP)}",
        "quit",
    )
    said = prismdbg("debug", taken.capsule, "--runtime", "local", typed="".join(f"{line}\n" for line in lines))
    assert said.code == 0, said.out + said.err
    answers = dict(part.split("\n", 1) for part in said.out.split("(prismdbg) ")[1:] if "\n" in part)
    assert "stopped at 22.0: exception" in answers["continue"]
    assert "return self.down(F.gelu(self.up(x)))" in answers["continue"]
    assert answers["print len(curve)"].strip() == "22"
    assert answers["print curve[-1]"].startswith("float32[] cpu, requires grad")
    assert "stopped at 21.2" in answers["reverse-next"]
    largest = answers[f"memory diff {' '.join(A_STEP)}"].partition("of\n")[2].splitlines()[0]
    assert f" < {line_of_the_leak()} < " in largest


def test_it_is_the_run_that_was(taken: Taken) -> None:
    verdict = replay(taken.capsule)
    assert_identical(verdict, taken.capsule)
    assert verdict["raised"]["incident"] == "oom"


def test_without_the_graphs_there_is_room(taken: Taken, tmp_path: Path) -> None:
    text = TRAIN.read_text()
    (tmp_path / TRAIN.name).write_text(text.replace(LEAK, "curve.append(loss_of(model, *held_out).detach())"))
    said = prismdbg("replay", taken.capsule, "--runtime", "local", "--source", tmp_path)
    assert said.code == 0, said.out + said.err
    assert "identical up to 21.2; it continued to 22.1: no exception" in said.out
