"""`graph build` of a recorded job, of a rank captured from it, of an emulated one, and of both: memory to the byte."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain import Taken, prismdbg, recording
from jobs import EXAMPLES, forked

from prismdbg.capsule.log.reader import read_log
from prismdbg.job_graph.captured_rank import whole_steps
from prismdbg.job_graph.recorded_step import last_whole_step
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.memory.peak import peak
from prismdbg.memory.trace import open_trace
from prismdbg.model.moment import Moment
from prismdbg.settings.rank_config import RANK_MEMORY
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.entries import PROVENANCES, Entries, Kind, Provenance
from prismdbg.simulate.graph.job_graph import JobGraph

pytestmark = pytest.mark.job

GPT = ("--size", "1m", "--steps", "40", "--log-every", "1")  # long enough to be captured on its way


@pytest.fixture(scope="module")
def captured(new_session_folder: Callable[[str], Path]) -> Taken:
    """Rank 1 of two, captured out of the GPT's training, which went on to its end."""
    home = new_session_folder("graph")
    with recording(forked(EXAMPLES / "train_ddp.py", *GPT, ranks=2), home) as job:
        job.wait_for_step(1, 3)
        said = prismdbg("capture", job.run.path, "--rank", 1, "--window", 3, "-o", home / "capsule")
        assert said.code == 0, f"{said.err}\n{job.job.output[-3000:]}"
        return Taken(recording=job, ended=job.end(), capsule=home / "capsule").went_on()


def built(*arguments: object, file: Path) -> JobGraph:
    said = prismdbg("graph", "build", *arguments, "-o", file)
    assert said.code == 0, said.err
    return graph_file.load(file)


def simulated(file: Path) -> dict[str, Any]:
    said = prismdbg("graph", "simulate", file, "--json")
    assert said.code == 0, said.err
    return said.json


def errors(file: Path) -> dict[str, float]:
    """By component: the simulation against what was recorded."""
    return {error["component"]: error["worst"] for error in simulated(file)["fidelity"]["errors"]}


def labels(entries: Entries) -> Counter[str]:
    computed = np.flatnonzero(entries.kind == Kind.COMPUTE)
    return Counter(entries.texts[entries.label[entry]] for entry in computed)


def computed_by(entries: Entries) -> set[Provenance]:
    return {PROVENANCES[number] for number in entries.provenance[entries.kind == Kind.COMPUTE]}


def test_a_recorded_step_simulated_takes_as_long_as_it_took(captured: Taken, tmp_path: Path) -> None:
    run = captured.recording.run.path
    graph = built(run, "--mesh", "dp=2", "--as-recorded", file=tmp_path / "graph.npz")
    assert [c.name for c in graph.classes] == [f"rank {rank}" for rank in range(2)]
    assert abs(errors(tmp_path / "graph.npz")["iteration"]) <= 1e-6


@pytest.mark.criu
def test_a_captured_rank_among_8191_others(captured: Taken, tmp_path: Path) -> None:
    capsule, file = captured.capsule, tmp_path / "graph.npz"
    graph = built(capsule, "--mesh", "dp=2", "--alike", "dp", "--stretch", "dp=8192", "--runtime", "local", file=file)
    (only,) = graph.classes
    found = labels(only.entries)
    assert {"aten::linear", "AddmmBackward0"} <= set(found), found
    assert computed_by(only.entries) == {Provenance.REPLAYED}  # also what it waited for is known, so nothing is assumed
    lines = {only.entries.texts[n] for n in only.entries.line[only.entries.communicates]}
    assert all(line.startswith(str(EXAMPLES)) for line in lines), lines

    log = read_log(RunFolder(captured.recording.run.path).latest(1))
    marks = {mark.step: mark.time_ns for mark in log.steps}
    # the log goes on after the capsule's end, and may hold a whole step of which no replay runs all
    _, step = whole_steps(captured.manifest, read_log(capsule / "prismdbg" / "log"))
    own = (only.entries.kind == Kind.COMPUTE) & (only.entries.stream == 0)
    assert 0 < only.entries.duration_ns[own].sum() <= marks[step + 1] - marks[step]

    said = prismdbg("memory", capsule, "--runtime", "local", "--begin", step, "--end", step + 1, "--json")
    assert said.json["peak_bytes"] == only.entries.peak_bytes()
    assert said.json["is_least"] and only.entries.holds_more, "DDP's buckets are older than the image"
    result = simulated(file)
    assert result["world"] == 8192
    assert any("only C++" in doubt for doubt in result["fidelity"]["doubts"])
    assert file.stat().st_size <= 1 << 20


def test_a_capsule_from_its_log_alone(captured: Taken, tmp_path: Path) -> None:
    file = tmp_path / "graph.npz"
    graph = built(captured.capsule, "--mesh", "dp=2", "--alike", "dp", "--no-replay", file=file)
    assert set(labels(graph.classes[0].entries)) == {"program"} and graph.classes[0].entries.peak_bytes() == 0

    said = prismdbg("graph", "build", captured.capsule, "--mesh", "dp=8", "--alike", "dp", "--no-replay")
    assert said.code == 2 and "the world has 2 ranks" in said.err
    said = prismdbg("graph", "build", captured.capsule, "--mesh", "pp=2,dp=1", "--alike", "dp", "--no-replay")
    assert said.code == 2 and "1 rank has no class" in said.err
    said = prismdbg("graph", "build", captured.capsule, "--as-recorded")
    assert said.code == 2 and "--as-recorded needs a RUN" in said.err


def test_an_emulated_rank_with_its_operators_and_its_memory_and_a_captured_one_in_its_place(
    captured: Taken, tmp_path: Path
) -> None:
    run, file = tmp_path / "run", tmp_path / "graph.npz"
    emulation = ("emulate", "-o", run, "--world", 2, "--mesh", "dp=2", "--steps", 3, "--memory", "--")
    program = (sys.executable, EXAMPLES / "train_ddp.py", *GPT)
    assert prismdbg(*emulation, *program).code == 0
    graph = built(run, "--alike", "dp", file=file)
    entries = graph.classes[0].entries
    folder = RunFolder(run).latest(0)
    step = last_whole_step([read_log(folder)])
    highest = peak(open_trace(folder / RANK_MEMORY), Moment(step), Moment(step + 1))
    assert highest is not None and entries.peak_bytes() == highest.size_bytes > 10**6
    assert computed_by(entries) == {Provenance.REAL}
    assert {"aten::linear", "AddmmBackward0"} <= set(labels(entries))

    both = built(run, "--alike", "dp", "--with", captured.capsule, "--no-replay", file=file)
    assert [(c.name, int((both.class_at == n).sum())) for n, c in enumerate(both.classes)] == [
        ("as rank 0", 1),
        ("captured rank 1", 1),
    ]
    assert simulated(file)["world"] == 2

    options = ("--alike", "dp", "--stretch", "dp=8192", "--with", captured.capsule, "--no-replay")
    among = built(run, *options, file=file)
    assert [(c.name, int((among.class_at == n).sum())) for n, c in enumerate(among.classes)] == [
        ("as rank 0", 8191),
        ("captured rank 1", 1),
    ]
    assert among.class_of(1).name == "captured rank 1"
    assert simulated(file)["world"] == 8192
