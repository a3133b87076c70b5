"""What people see of a simulation: rows, charts, the critical path's shares, and the trace for Perfetto."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from prismdbg.model.durations import four_digits
from prismdbg.simulate.cluster.cluster import example, ideal
from prismdbg.simulate.engine.changes import Changes
from prismdbg.simulate.engine.critical_path import critical_path
from prismdbg.simulate.engine.engine import Keep
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.report import charts, perfetto, report
from prismdbg.simulate.report.report import Span, StageRow

GRAPH = gpt_job(Mesh.parse("pp=4,dp=2,tp=2"), GptShape(layers=8, hidden=1024, microbatches=4, vocabulary=100))


@pytest.fixture(scope="module")
def slow() -> Timeline:
    return simulate(GRAPH, example(), Changes(compute_ppm={6: 1_400_000}), trace=True, keep=Keep.ALL)


class TestRows:
    def test_a_straggler_comes_first(self, slow: Timeline) -> None:
        (row,) = report.stragglers(slow)

        assert (row.rank, row.coordinates, row.class_name) == (6, "pp=1 dp=1 tp=0", "stage 1")
        assert row.excess_ns == pytest.approx(0.4 * (row.computed_ns - row.excess_ns), rel=1e-3)

    def test_waits_by_axis(self, slow: Timeline) -> None:
        rows = {row.channel: row for row in report.by_axis(slow)}

        assert {"tp", "dp", "pp+1", "pp-1", "world", "pp[0,3]"} == set(rows)
        assert rows["tp"].most_late_rank == 7, "who shares its tensors with the straggler"
        assert rows["tp"].hidden_ns == 0
        assert rows["dp"].hidden_ns > 0

    def test_stages_in_order(self, slow: Timeline) -> None:
        rows = report.stages(slow)

        assert [row.name for row in rows] == sorted(row.name for row in rows)
        assert sum(row.ranks for row in rows) == 16
        assert all(abs(row.computed + row.shown + row.idle - 1) < 1e-9 for row in rows)
        idle = sum(row.idle * row.ranks for row in rows) / 16
        assert abs(idle - slow.bubble_share) < 0.03, "the idle share of the heading is of these"
        peaks = {row.name: row.peak_bytes for row in rows}
        assert peaks["stage 0"] == 4 * peaks["stage 3"], "1F1B holds as many microbatches as there are stages after it"
        assert [span.label for span in rows[-1].spans][:4] == ["F0", "B0", "F1", "B1"]

    def test_only_a_microbatch_is_one_over_what_lies_between(self) -> None:
        def spans(first: str, second: str) -> list[tuple[str, int, int]]:
            writer = EntryWriter()
            writer.compute(100, first)
            writer.compute(100, first)
            writer.collective("all_reduce", "dp", 10, duration_ns=50)
            writer.compute(100, second)
            graph = JobGraph.build(Mesh.parse("dp=2"), [(RankClass(name="all", entries=writer.done()), range(2))])
            return [(s.label, s.start_ns, s.end_ns) for s in report.stages(simulate(graph, ideal()))[0].spans]

        assert spans("F3 attention", "F3 mlp") == [("F3", 0, 350)]
        assert spans("program", "program") == [("program", 0, 200), ("program", 250, 350)]

    def test_the_path_leads_over_the_straggler(self, slow: Timeline) -> None:
        rows = report.path_rows(critical_path(slow))

        assert sum(row.taken_ns for row in rows) == slow.iteration_ns
        assert max(rows, key=lambda row: row.taken_ns if not row.channel else 0).rank == 6


class TestCharts:
    def test_the_pipeline(self) -> None:
        timeline = simulate(
            gpt_job(Mesh.parse("pp=2"), GptShape(layers=2, hidden=64, microbatches=2, vocabulary=1)), ideal()
        )
        columns = 36 + len("stage 0") + charts.BESIDE + charts.MEMORY_WIDTH
        first, second, scale, legend = charts.pipeline(report.stages(timeline), timeline.iteration_ns, columns)

        assert first.startswith("stage 0 FFFFfff")
        assert "BBBBBBBB" in first and "bbbbbbb" in first and charts.IDLE in first
        assert second.startswith(f"stage 1 {charts.IDLE * 3}")
        assert len(first) == len(second) == columns
        beside = ["computes", "exposed", "idle", "memory"]
        assert scale.split() == ["0", *four_digits(timeline.iteration_ns).split(), *beside]
        assert first.endswith(" 8.0 MiB") and timeline.graph.classes[0].entries.peak_bytes() == 8_388_608
        assert "lower case where it is odd" in legend

    def test_what_is_too_fine_is_shown_in_proportion(self) -> None:
        rows = [
            self.stage(*(Span(label=f"{'FB'[i % 2]}{i // 2}", start_ns=i * 10, end_ns=i * 10 + 10) for i in range(160)))
        ]
        bar, *_, legend = charts.pipeline(rows, 1600, 20 + len("stage") + charts.BESIDE)

        drawn = bar.split()[1]
        assert (drawn.count("F"), drawn.count("B")) == (10, 10), "not what happens to win each column"
        assert "several of them in a column" in legend

    def test_more_stages_than_anybody_reads(self) -> None:
        lines = charts.pipeline([self.stage()] * 100, 1000)
        assert len(lines) == charts.MOST_STAGES + 3 and "36 more classes of ranks" in lines

    def stage(self, *spans: Span) -> StageRow:
        return StageRow(name="stage", rank=0, ranks=1, computed=1.0, shown=0.0, idle=0.0, peak_bytes=0, spans=spans)

    def test_tables_have_a_line_a_row(self, slow: Timeline) -> None:
        assert len(charts.waits(report.by_axis(slow))) == 7
        assert " +" in charts.slowest(report.stragglers(slow))[1]
        shares = [
            float(line.split("%")[0])
            for line in charts.path(report.path_rows(critical_path(slow)), slow.iteration_ns)[1:]
        ]
        assert sum(shares) == pytest.approx(100, abs=2)

    def test_what_a_change_does_to_each_axis(self, slow: Timeline) -> None:
        rows = report.by_axis(slow)
        lines = charts.compared_waits(rows[1:], rows[:-1])

        assert len(lines) == 1 + len(rows) and max(map(len, lines)) <= 80
        assert lines[1].split()[:2] == [rows[0].channel, "-"], "what was not there before"
        assert lines[-1].startswith(rows[-1].channel) and lines[-1].split()[-1] == "-"

    @pytest.mark.parametrize(
        ("taken_ns", "text"),
        [(0, "0 ns"), (999, "999 ns"), (1500, "1.5 µs"), (2 * 10**9, "2 s"), (123456789, "123.5 ms")],
    )
    def test_durations(self, taken_ns: int, text: str) -> None:
        assert four_digits(taken_ns) == text


class TestPerfetto:
    def test_the_trace_is_the_timeline(self, slow: Timeline, tmp_path: Path) -> None:
        perfetto.write(slow, tmp_path / "trace.json", ranks=[6])
        trace = json.loads((tmp_path / "trace.json").read_text())

        names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
        assert names[0] == "stage 0: rank 0 (pp=0 dp=0 tp=0), represents 4 ranks"
        assert names[16 + 6] == "rank 6 (pp=1 dp=1 tp=0)"
        assert len(names) == len(slow.teams) + 1
        computed = sum(e["dur"] for e in trace["traceEvents"] if e["pid"] == 22 and e.get("cat") == "compute")
        assert computed * 1000 == pytest.approx(int(slow.computed_ns[6]))
        assert trace["otherData"]["fidelity"] == slow.fidelity.lines()

    def test_the_critical_path_has_a_thread_a_rank_and_arrows_between_them(self, slow: Timeline) -> None:
        parts = critical_path(slow)
        found = [e for e in perfetto.events(slow, critical=parts) if e["pid"] == 2 * 16]
        slices = sorted((e for e in found if e["ph"] == "X"), key=lambda e: e["ts"])
        arrows = [e for e in found if e["ph"] in "sf"]

        assert {e["args"]["name"] for e in found if e["name"] == "thread_name"} == {
            slow.graph.mesh.say(part.rank) for part in parts
        }
        assert sum(e["dur"] for e in slices) == pytest.approx(slow.iteration_ns / 1000)
        assert all(a["ts"] + a["dur"] == pytest.approx(b["ts"]) for a, b in pairwise(slices)), "no gaps"
        hops = [(a["tid"], b["tid"]) for a, b in pairwise(slices) if a["tid"] != b["tid"]]
        assert [(s["tid"], f["tid"]) for s, f in zip(arrows[::2], arrows[1::2], strict=True)] == hops != []
        for arrow in arrows:  # each within a slice of its thread, or nothing is drawn
            assert any(s["tid"] == arrow["tid"] and s["ts"] <= arrow["ts"] < s["ts"] + s["dur"] for s in slices)

    def test_as_the_format_wants_it(self, slow: Timeline) -> None:
        wanted = {
            "X": {"name", "cat", "pid", "tid", "ts", "dur"},
            "M": {"name", "pid", "tid", "args"},
            "C": {"name", "pid", "ts", "args"},
            "s": {"name", "cat", "id", "pid", "tid", "ts"},
            "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
            "b": {"name", "cat", "id", "pid", "tid", "ts"},
            "e": {"name", "cat", "id", "pid", "tid", "ts"},
        }
        found = list(perfetto.events(slow, [6], critical_path(slow)))
        assert {e["ph"] for e in found} >= {"X", "M", "C", "s", "f"}
        for event in found:
            assert wanted[event["ph"]] <= event.keys(), event
            assert all(event.get(name, 0) >= 0 for name in ("pid", "tid", "ts", "dur"))
        begun = [e["id"] for e in found if e["ph"] == "b"]
        assert begun == [e["id"] for e in found if e["ph"] == "e"] and len(set(begun)) == len(begun)

    def test_nothing_of_a_thread_overlaps(self, slow: Timeline) -> None:
        """Else Perfetto draws one inside the other."""
        threads = defaultdict(list)
        for event in perfetto.events(slow, critical=critical_path(slow)):
            if event["ph"] == "X":
                threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        assert len(threads) > 8
        for slices in threads.values():
            slices.sort()
            assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(slices))
