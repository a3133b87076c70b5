"""The order of 1F1B, and the whole of it in the engine against closed formulas."""

from __future__ import annotations

import pytest

from prismdbg.predict.job.schedule import turns
from prismdbg.simulate.cluster.cluster import ideal
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.entries import Entries
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh


def said(stage: int, stages: int, microbatches: int, chunks: int = 1) -> str:
    found = turns(stage, stages, microbatches, chunks)
    return " ".join(f"{'F' if t.is_forward else 'B'}{t.microbatch}{'abc'[t.chunk]}" for t in found)


def test_the_order_is_1f1b() -> None:
    assert said(0, 3, 4) == "F0a F1a F2a B0a F3a B1a B2a B3a"
    assert said(2, 3, 4) == "F0a B0a F1a B1a F2a B2a F3a B3a"


def test_the_interleaved_order_is_megatrons() -> None:
    assert said(1, 2, 4, 2) == "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a"


@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("stage", range(4))
def test_every_microbatch_runs_once_each_way_and_forward_first(stage: int, chunks: int) -> None:
    found = [(t.is_forward, t.microbatch, t.chunk) for t in turns(stage, 4, 8, chunks)]
    assert len(found) == len(set(found)) == 2 * 8 * chunks
    for microbatch in range(8):
        for chunk in range(chunks):
            assert found.index((True, microbatch, chunk)) < found.index((False, microbatch, chunk))


def pipeline_ns(times: list[tuple[int, int]], microbatches: int, chunks: int = 1) -> int:
    """By the engine: stages with these times, forward and backward, on links that take no time."""
    stages = len(times)
    mesh = Mesh.parse(f"pp={stages}")
    classes = [
        RankClass(name=f"{s}", entries=_stage(s, stages, *times[s], microbatches, chunks)) for s in range(stages)
    ]
    graph = JobGraph.build(mesh, [(each, [stage]) for stage, each in enumerate(classes)])
    return simulate(graph, ideal()).iteration_ns


def _stage(stage: int, stages: int, forward_ns: int, backward_ns: int, microbatches: int, chunks: int) -> Entries:
    writer = EntryWriter()
    for turn in turns(stage, stages, microbatches, chunks):
        at = turn.chunk * stages + stage  # along all chunks
        here, there, sent = ("pp-1#f", "pp+1#f", at + 1) if turn.is_forward else ("pp+1#b", "pp-1#b", at - 1)
        is_first = at == 0 if turn.is_forward else at == stages * chunks - 1
        if not is_first:
            writer.recv(here, 1)
        writer.compute((forward_ns if turn.is_forward else backward_ns) // chunks)
        if 0 <= sent < stages * chunks:
            writer.send(there, 1, stream=f"{there} send")
    return writer.done()


@pytest.mark.parametrize("microbatches", [7, 8, 32])
@pytest.mark.parametrize(
    "times", [[(3000, 6000)] * 4, [(3000, 6000), (3000, 6000), (3000, 6000), (4000, 8000)], [(2000, 5000)] * 7]
)
def test_1f1b_takes_what_the_closed_formula_says(times: list[tuple[int, int]], microbatches: int) -> None:
    """arXiv 2509.22832: the slowest stage for all microbatches but one, and one through all stages. It holds from as
    many microbatches as stages on."""
    each = [forward + backward for forward, backward in times]
    formula = (microbatches - 1) * max(each) + sum(each)
    assert pipeline_ns(times, microbatches) == formula


@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize("microbatches", [4, 8, 16])
def test_interleaving_divides_the_bubble_by_the_chunks(chunks: int, microbatches: int) -> None:
    """Narayanan et al., arXiv 2104.04473, section 2.2."""
    forward, backward, stages = 3000, 6000, 4
    formula = (forward + backward) * (microbatches + (stages - 1) / chunks)
    assert pipeline_ns([(forward, backward)] * stages, microbatches, chunks) == formula
