"""A job graph as Chakra traces: who communicates with whom, and what waits for what."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from prismdbg.cli.main import cli
from prismdbg.diagnosis.why import diagnose
from prismdbg.errors import UsageError
from prismdbg.exporters import chakra_graph
from prismdbg.exporters.chakra import write_traces
from prismdbg.exporters.chakra_graph import write_graph
from prismdbg.importers import chakra
from prismdbg.importers.chakra_schema import COLLECTIVE, COMP, RECV, SEND
from prismdbg.importers.formats import read_job
from prismdbg.job_graph.builder import GraphRequest, build_graph
from prismdbg.jobs.evidence import gather
from prismdbg.model.collective import TensorMeta
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.entries import Kind
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.graph.mesh import Mesh
from tests.unit.logs import Job

SHAPE = GptShape(layers=2, hidden=8, sequence=4, microbatches=2)


def job() -> JobGraph:
    return gpt_job(Mesh.parse("pp=2,dp=2,tp=2"), SHAPE)


def nodes_of(folder: Path, rank: int) -> list[Any]:
    return list(chakra._nodes(folder / f"chakra.{rank}.et"))


def told(node: Any) -> dict[str, Any]:
    return chakra._attributes(node)


def test_each_message_has_its_receive(tmp_path: Path) -> None:
    write_graph(job(), tmp_path)
    ways: dict[int, Counter[tuple[int, ...]]] = {SEND: Counter(), RECV: Counter()}
    for rank in range(8):
        for node in nodes_of(tmp_path, rank):
            if node.type in ways:
                found = told(node)
                ways[node.type][tuple(found[name] for name in ("comm_src", "comm_dst", "comm_tag", "comm_size"))] += 1
                assert rank == found["comm_src" if node.type == SEND else "comm_dst"]
    assert ways[SEND] == ways[RECV]
    assert ways[SEND]


def test_groups_contain_their_rank_and_all_members_make_the_same_calls(tmp_path: Path) -> None:
    write_graph(job(), tmp_path)
    groups = json.loads((tmp_path / "comm_groups.json").read_text())
    calls: dict[str, dict[int, list[tuple[int, int]]]] = {}
    for rank in range(8):
        for node in nodes_of(tmp_path, rank):
            if node.type == COLLECTIVE:
                found = told(node)
                assert rank in groups[found["pg_name"]]
                calls.setdefault(found["pg_name"], {}).setdefault(rank, []).append(
                    (found["comm_type"], found["comm_size"])
                )
    for name, by_rank in calls.items():
        assert sorted(by_rank) == groups[name]
        assert len({tuple(each) for each in by_rank.values()}) == 1
    assert diagnose(gather(tmp_path)).verdicts == ()


@pytest.mark.parametrize("op", ["allgather_", "_allgather_base_", "_reduce_scatter_base_", "allreduce_"])
def test_a_call_has_the_size_that_the_export_of_its_recording_has(tmp_path: Path, op: str) -> None:
    """What a rank passes in: of an all_gather one part. Read back, it is the same graph."""
    part, whole = (TensorMeta((size,), "float32") for size in (100, 400))
    recorded = Job(4)
    recorded.call(op)
    for rank in range(4):
        call = recorded.calls(rank)[0]
        outputs = (part,) * 4 if op == "allgather_" else (part if op.startswith("_reduce") else whole,)
        recorded.calls(rank)[0] = replace(call, inputs=(part if "gather" in op else whole,), outputs=outputs)
    written = [tmp_path / name for name in ("run", "graph")]
    for folder in written:
        folder.mkdir()
    write_traces(recorded.logs, written[0], last=100)
    graph = graph_of(written[0])
    write_graph(graph, written[1])
    sizes = [[told(n)["comm_size"] for n in nodes_of(each, 2) if n.type == COLLECTIVE] for each in written]
    assert sizes[0] == sizes[1]
    assert call_sizes(graph_of(written[1])) == call_sizes(graph) == [1600]


def graph_of(traces: Path) -> JobGraph:
    return build_graph(GraphRequest(run=traces, mesh=Mesh.parse("dp=4")))


def call_sizes(graph: JobGraph) -> list[int]:
    entries = graph.class_of(0).entries
    return [int(size) for size in entries.size_bytes[entries.kind == Kind.COLLECTIVE]]


def test_a_node_is_after_earlier_nodes_of_the_file(tmp_path: Path) -> None:
    write_graph(job(), tmp_path)
    for rank in range(8):
        known: set[int] = set()
        for node in nodes_of(tmp_path, rank):
            assert set(node.data_deps) <= known
            known.add(node.id)
        first = nodes_of(tmp_path, rank)[0]
        assert not first.data_deps


def test_a_computation_waits_for_the_call_that_blocks_it(tmp_path: Path) -> None:
    """Of tensor parallelism: the next computation needs the all_gather before it."""
    write_graph(job(), tmp_path)
    nodes = nodes_of(tmp_path, 0)
    blocking = [number for number, entry in enumerate(job().class_of(0).entries.blocking) if entry]
    needed = {need for node in nodes if node.type == COMP for need in node.data_deps}
    assert len(blocking) > 4
    assert len(needed & set(blocking)) > 4


def test_slower_ranks_compute_longer(tmp_path: Path) -> None:
    graph = job()
    graph.compute_ppm_at[:] = 3_000_000
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    write_graph(graph, tmp_path / "a", [0])
    write_graph(job(), tmp_path / "b", [0])
    slow, fast = (sum(n.duration_micros for n in nodes_of(tmp_path / name, 0) if n.type == COMP) for name in "ab")
    assert slow >= 2 * fast


def test_the_command_writes_the_ranks_that_are_asked_for(tmp_path: Path) -> None:
    graph_file.save(job(), tmp_path / "g.npz")
    line = ["graph", "export", str(tmp_path / "g.npz"), "--format", "chakra", "-o", str(tmp_path / "out")]
    said = CliRunner().invoke(cli, [*line, "--rank", "0", "--rank", "5"])
    assert said.exit_code == 0, said.output
    assert "chakra, 2 ranks" in said.output
    found = read_job(tmp_path / "out")
    assert found is not None
    assert sorted(found.logs) == [0, 5]


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chakra_graph, "MOST_RANKS", 7)
    with pytest.raises(UsageError, match="8 ranks would be as many files"):
        write_graph(job(), tmp_path)
