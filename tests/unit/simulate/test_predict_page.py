"""The page and the map of all ranks: what stands in them, and that nothing in a graph can become markup."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest

from prismdbg.simulate.cluster.cluster import example, ideal
from prismdbg.simulate.engine.changes import Changes
from prismdbg.simulate.engine.critical_path import critical_path
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.report import heat
from prismdbg.simulate.report.heat import Measure
from prismdbg.simulate.report.page.markup import picture, tag
from prismdbg.simulate.report.page.page import page
from prismdbg.simulate.report.page.pipeline import MOST_ROWS, kind_of, pipeline
from prismdbg.simulate.report.report import Span, StageRow

MESH = Mesh.parse("pp=4,dp=4,tp=2")
GRAPH = gpt_job(MESH, GptShape(layers=8, hidden=1024, microbatches=4, vocabulary=100))


@pytest.fixture(scope="module")
def slow() -> Timeline:
    return simulate(GRAPH, example(), Changes(compute_ppm={11: 1_400_000}), trace=True)


class Reader(HTMLParser):
    """Every element that was opened is closed, in order."""

    VOID = {"meta", "img", "input", "link"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


class TestTheMap:
    def test_a_cell_for_each_rank_in_the_meshs_order(self) -> None:
        grid = heat.grid(Mesh.parse("pp=16,dp=64,tp=8"))
        assert (grid.rows, grid.columns, grid.ranks.shape) == (("pp",), ("dp", "tp"), (16, 512))
        turned = Mesh.parse("pp=4,dp=4,tp=2", order="tp,pp,dp")
        assert heat.grid(turned).rows == ("tp",)
        assert heat.grid(turned).label_of_row(turned, 1) == "tp=1"
        assert heat.grid(turned).label_of_column(turned, 5) == "pp=1 dp=1"
        assert heat.grid(Mesh.parse("dp=3")).ranks.tolist() == [[0, 1, 2]]

    def test_a_straggler_comes_late_and_waits_least(self, slow: Timeline) -> None:
        late = heat.values(slow, Measure.ARRIVAL)
        assert int(late.argmax()) == 11
        assert heat.values(slow, Measure.WAIT)[11] < heat.values(slow, Measure.WAIT)[10], "who shares its tensors"
        assert (heat.values(slow, Measure.MEMORY) == GRAPH.peak_bytes).all()
        assert heat.values(slow, Measure.MEMORY)[0] > heat.values(slow, Measure.MEMORY)[31]

    def test_lateness_is_exact_where_it_can_be_counted(self) -> None:
        writer = EntryWriter()
        writer.compute(1000)
        writer.collective("all_reduce", "tp", 8)
        graph = JobGraph.build(Mesh.parse("dp=2,tp=3"), [(RankClass(name="all", entries=writer.done()), range(6))])
        timeline = simulate(graph, ideal(), Changes(compute_ppm={4: 1_500_000, 5: 1_200_000}))

        assert heat.values(timeline, Measure.ARRIVAL).tolist() == [0, 0, 0, 0, 500, 200]
        assert heat.values(timeline, Measure.WAIT).tolist() == [0, 0, 0, 500, 0, 300]

    def test_some_of_an_axis(self) -> None:
        first, last, other = EntryWriter(), EntryWriter(), EntryWriter()
        for writer, taken_ns in ((first, 100), (other, 10), (last, 700)):
            writer.compute(taken_ns)
        for writer in (first, last):
            writer.collective("all_reduce", "pp[0,2]", 8)
        classes = [(RankClass(name=str(i), entries=w.done()), [i]) for i, w in enumerate((first, other, last))]
        timeline = simulate(JobGraph.build(Mesh.parse("pp=3"), classes), ideal())
        assert heat.values(timeline, Measure.WAIT).tolist() == [600, 0, 0]
        assert heat.values(timeline, Measure.ARRIVAL).tolist() == [0, 0, 600], "they make the same calls"

        alike = [
            (RankClass(name="ends", entries=first.done()), [0, 2]),
            (RankClass(name="1", entries=other.done()), [1]),
        ]
        timeline = simulate(JobGraph.build(Mesh.parse("pp=3"), alike), ideal(), Changes(compute_ppm={2: 7_000_000}))
        assert heat.values(timeline, Measure.ARRIVAL).tolist() == [0, 0, 600]

    @pytest.mark.parametrize(("other_op", "late_ns"), [("all_reduce", 600), ("broadcast", 0)])
    def test_ranks_of_other_classes_count_if_they_make_the_same_calls(self, other_op: str, late_ns: int) -> None:
        """Here each rank is a class of its own, as recorded ranks are."""
        writers = EntryWriter(), EntryWriter()
        for writer, taken_ns, op in zip(writers, (100, 700), ("all_reduce", other_op), strict=True):
            writer.collective(op, "dp", 8)
            writer.compute(taken_ns)
            writer.collective("all_reduce", "tp", 8)
        classes = [(RankClass(name=str(i), entries=w.done()), [i]) for i, w in enumerate(writers)]
        timeline = simulate(JobGraph.build(Mesh.parse("dp=1,tp=2"), classes), ideal())
        assert heat.values(timeline, Measure.ARRIVAL).tolist() == [0, late_ns]


class TestThePage:
    def test_it_is_whole_and_needs_nothing_else(self, slow: Timeline) -> None:
        text = page(slow, critical_path(slow))
        reader = read(text)

        assert not re.search(r"(src|href)=\"(?!data:)", text) and "http" not in text and "@import" not in text
        assert {"svg", "table", "img", "script", "style"} <= {name for name, _ in reader.seen}
        for line in slow.fidelity.doubts:
            assert line.replace("'", "&#x27;") in text
        assert "rank 11 (pp=1 dp=1 tp=1)" in text

    def test_the_values_behind_the_picture(self, slow: Timeline) -> None:
        images = [held for name, held in read(page(slow, [])).seen if name == "img"]
        raw = np.frombuffer(base64.b64decode(images[0]["data-values"] or ""), dtype="<u2")
        least, most = (int(images[0][f"data-{name}"] or "") for name in ("least", "most"))
        waits = heat.values(slow, Measure.WAIT)

        assert len(images) == len(Measure)
        assert np.abs(least + raw / 65535 * (most - least) - waits).max() <= (most - least) / 65535
        axes = next(held["data-axes"] for _, held in read(page(slow, [])).seen if "data-axes" in held)
        assert json.loads(axes or "") == [
            {"name": "pp", "size": 4},
            {"name": "dp", "size": 4},
            {"name": "tp", "size": 2},
        ]

    def test_where_all_ranks_are_alike_nothing_is_drawn(self) -> None:
        writer = EntryWriter()
        writer.compute(5)
        graph = JobGraph.build(Mesh.parse("dp=2"), [(RankClass(name="all", entries=writer.done()), range(2))])
        text = page(simulate(graph, ideal()), [])
        assert text.count("The same on every rank: 0 ns.") == 2 and "The same on every rank: 5 ns." in text

    def test_a_program_cannot_write_markup(self) -> None:
        evil = "</title><script>alert(1)</script>\"'"
        writer = EntryWriter()
        writer.compute(5, evil)
        writer.collective("all_reduce", "dp", 8, line=evil)
        graph = JobGraph.build(Mesh.parse("dp=2"), [(RankClass(name=evil, entries=writer.done()), range(2))])
        timeline = simulate(graph, example(), trace=True)
        text = page(timeline, critical_path(timeline))

        read(text)
        assert text.count("<script>") == 1 and "alert(1)</script>" not in text


class TestThePipeline:
    def row(self, *spans: Span) -> StageRow:
        return StageRow(name="stage", rank=0, ranks=1, computed=1, shown=0, idle=0, peak_bytes=0, spans=spans)

    def test_boxes_too_narrow_to_see_become_one(self) -> None:
        spans = [Span(label=f"F{i}", start_ns=i * 10, end_ns=i * 10 + 10) for i in range(10_000)]
        text = pipeline([self.row(*spans)], 100_000)
        assert 1000 < text.count('class="forward') < 2600

    def test_a_box_says_what_it_is(self) -> None:
        text = pipeline([self.row(Span(label="B3", start_ns=500, end_ns=1000))], 1000)
        assert "<title>B3: 500 ns to 1 µs</title>" in text
        assert 'x="690.00"' in text and 'width="500.00"' in text and 'class="backward odd"' in text

    def test_more_rows_than_anybody_reads(self) -> None:
        assert "36 more classes are not drawn" in pipeline([self.row()] * (MOST_ROWS + 36), 1000)

    @pytest.mark.parametrize(
        ("label", "kind"),
        [("F3", "forward"), ("B12", "backward"), ("Floor", "other"), ("", "other"), ("optimizer", "other")],
    )
    def test_colours(self, label: str, kind: str) -> None:
        assert kind_of(label) == kind


def test_a_picture_is_a_png() -> None:
    data = base64.b64decode(
        picture(np.array([[0, 1, 2], [2, 1, 0]], dtype=np.uint8), [(0, 0, 0)] * 256).partition(",")[2]
    )
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and data[16:24] == b"\0\0\0\3\0\0\0\2"
    start = data.index(b"IDAT")
    assert zlib.decompress(data[start + 4 : -16]) == b"\0\0\1\2\0\2\1\0"


def test_a_tag() -> None:
    assert tag("a", "<b>", class_="x", data_y='"', gone=None) == '<a class="x" data-y="&quot;">&lt;b&gt;</a>'
    assert tag("img", alt="") == '<img alt="">'
