"""`why`, `open`, `graph build` and `export` on traces that torch's profiler wrote in a real job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chain import prismdbg
from jobs import plain_environment, run, torchrun
from torch_analyser import analysed

from prismdbg import open as prismdbg_open
from prismdbg.importers.formats import read_job
from prismdbg.model.collective import TensorMeta

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parent.parent / "programs" / "traced_steps.py"
STEPS, CALLS = range(2, 14), 4


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of two ranks, of which rank 1 is slow."""
    folder = tmp_path_factory.mktemp("profiled")
    ended = run(torchrun(PROGRAM, folder, "slow", ranks=2), folder / "output.txt", env=plain_environment())
    assert ended.code == 0, ended.output[-3000:]
    return folder


@pytest.fixture(scope="module")
def traces(profiled: Path) -> Path:
    folder = profiled / "traces"
    folder.mkdir()
    for trace in profiled.glob("trace_*.json.gz"):
        trace.rename(folder / trace.name)
    return folder


@pytest.fixture(scope="module")
def executions(profiled: Path) -> Path:
    folder = profiled / "executions"
    folder.mkdir()
    for trace in profiled.glob("et_*.json"):
        trace.rename(folder / trace.name)
    return folder


def why(path: Path) -> dict[str, Any]:
    said = prismdbg("why", "--json", path)
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


def test_why_names_the_rank_that_was_late_and_its_line(traces: Path) -> None:
    (verdict,) = why(traces)["verdicts"]
    assert verdict["ranks"][0] == 1
    assert PROGRAM.name in json.dumps(verdict)


def test_why_names_it_also_where_no_observer_made_torch_number_the_calls(tmp_path: Path) -> None:
    """As `docs/other-tools.md` says how to record."""
    folder = tmp_path / "alone"
    folder.mkdir()
    ended = run(torchrun(PROGRAM, folder, "slow", "alone", ranks=2), tmp_path / "output.txt", env=plain_environment())
    assert ended.code == 0, ended.output[-3000:]
    found = why(folder)
    (verdict,) = found["verdicts"]
    assert verdict["ranks"][0] == 1
    assert not any("ended is unknown" in gap for gap in found["missing"])


def test_open_shows_all_ranks(traces: Path) -> None:
    said = prismdbg("open", traces)
    assert said.code == 0, said.err
    titles, *rows = (line.split("\t") for line in said.out.splitlines())
    found = [dict(zip(titles, row, strict=True)) for row in rows]
    assert [row["collectives"] for row in found] == [str(len(STEPS) * CALLS)] * 2
    # Profilers do not say when a program waited for an asynchronous call, as DistributedDataParallel issues them.
    # On a busy machine, the root of a broadcast is not always the last to come.
    assert all(len(STEPS) <= int(row["unknown_waits"]) <= 2 * len(STEPS) for row in found)
    assert all(0 < int(row["waited_ns"]) < 2_000_000_000 for row in found)


@pytest.mark.parametrize("options", [[], ["--as-recorded"]])
def test_a_graph_is_built_of_the_last_step(traces: Path, tmp_path: Path, options: list[str]) -> None:
    graph = tmp_path / "g.npz"
    built = prismdbg("graph", "build", traces, "--mesh", "dp=2", *options, "-o", graph)
    assert built.code == 0, built.err
    assert "profiler traces contain no values" in built.err
    simulated = prismdbg("graph", "simulate", graph)
    assert simulated.code == 0, simulated.err


def test_torchs_analyser_reads_what_is_written_of_it(traces: Path, tmp_path: Path) -> None:
    said = prismdbg("export", traces, "--format", "flight-recorder", "-o", tmp_path / "dumps")
    assert said.code == 0, said.err
    assert "left out: 24 calls: torch's analyser needs the sizes" in said.err
    assert "sequence number" not in analysed(tmp_path / "dumps")
    again = why(tmp_path / "dumps")
    assert (again["verdicts"], again["ranks"]) == ([], [0, 1])


def test_execution_traces_are_read_alone_and_with_a_profilers(traces: Path, executions: Path, tmp_path: Path) -> None:
    assert why(executions)["verdicts"] == []
    for file in (*traces.iterdir(), *executions.iterdir()):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    both, alone = prismdbg_open(tmp_path), prismdbg_open(traces)
    gathered = [call for call in both[0].collectives if call.op == "allgather_"]
    assert {call.outputs for call in gathered} == {(TensorMeta((2,), "float32"),) * 2}
    assert [call.duration_ns for call in both[0].collectives] == [call.duration_ns for call in alone[0].collectives]
    alone_in_them = prismdbg_open(executions)
    for rank in (0, 1):
        told = [(call.moment, call.op, call.inputs) for call in alone_in_them[rank].collectives]
        assert told == [(call.moment, call.op, call.inputs) for call in both[rank].collectives]


def test_chakra_traces_of_it_are_read_back(traces: Path, tmp_path: Path) -> None:
    said = prismdbg("export", traces, "--format", "chakra", "-o", tmp_path / "nodes")
    assert said.code == 0, said.err
    assert why(tmp_path / "nodes")["verdicts"] == []
    first, again = prismdbg_open(traces), prismdbg_open(tmp_path / "nodes")
    for rank in (0, 1):
        assert [(c.op, c.inputs) for c in again[rank].collectives] == [
            (c.op, c.inputs) for c in first[rank].collectives
        ]


def test_chakras_converter_makes_no_calls_of_gloo(executions: Path, tmp_path: Path) -> None:
    """It takes the group into its traces, and of calls only NCCL's kernels."""
    module = pytest.importorskip("chakra.src.converter.pytorch_converter", reason="Chakra's tools are not installed")
    for rank in (0, 1):
        output = tmp_path / f"chakra.{rank}.et"
        module.PyTorchConverter().convert(str(executions / f"et_{rank}.json"), str(output), simulate=False)
    job = read_job(tmp_path)
    assert job is not None
    assert [log.collectives for log in job.logs.values()] == [[], []]
    assert job.logs[0].groups["0"].ranks == (0, 1)
    assert any("there is nothing to compare" in gap for gap in job.gaps)
