"""The tracer in a real process: exact against torch's profiler, whole after kill -9, and never in the way."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import warm_torch

from prismdbg.capsule.memory_format import Kind
from prismdbg.jobs.injection import cache_dir
from prismdbg.memory.grouping import BEFORE, By, grouped
from prismdbg.memory.live import live_at
from prismdbg.memory.peak import peak
from prismdbg.memory.refused import refusals
from prismdbg.memory.snapshot import write_snapshot
from prismdbg.memory.trace import open_trace
from prismdbg.model.moment import Moment
from prismdbg.rank.native import build as native_build

PROGRAM = Path(__file__).parents[1] / "programs" / "traced.py"
BOUND_S = 120

pytestmark = pytest.mark.job


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    native_build.build(cache_dir())


def traced(folder: Path, part: str, code: int = 0) -> Any:
    """What the program reports of itself."""
    ((ended, said),) = warm_torch.run((PROGRAM, cache_dir(), folder, part), cwd=folder)
    assert ended == code, said
    return json.loads((folder / "report.json").read_text())


def test_the_peak_is_the_profilers_to_the_byte_and_has_a_name(tmp_path: Path) -> None:
    report = traced(tmp_path, "profiled")
    trace = open_trace(tmp_path / "trace")
    step: Any = {"begin": Moment(1), "end": Moment(2)}
    found = peak(trace, **step, made_inside=True, with_backend=True)
    assert found is not None and found.allocation is not None
    assert found.size_bytes == report["peak_bytes"]
    rows = slice(trace.row_at(Moment(1)), trace.row_at(Moment(2)))
    assert int((trace.kind[rows] != Kind.OPERATOR).sum()) == report["events"]

    whole = peak(trace, **step)  # the blocks from before are really there, too
    assert whole is not None and whole.size_bytes == report["peak_bytes"] + report["before_bytes"]
    site = found.allocation.site
    assert site.own_frame is not None
    source = PROGRAM.read_text().splitlines()[site.own_frame.line - 1]
    assert (site.op, source.strip()) == ("aten::_log_softmax_backward_data", "loss.backward()")
    modules = {entry.label for entry in grouped(found.live, By.MODULE)}
    assert {"0.up", "1.up", "1.norm"} <= modules, modules
    assert sum(entry.size_bytes for entry in grouped(found.live, By.OP)) == found.size_bytes


def test_blocks_from_before_are_known_and_their_frees_are_seen(tmp_path: Path) -> None:
    report = traced(tmp_path, "older")
    assert report["before_bytes"] == report["after_a_step"] == report["held_bytes"]
    assert report["found"] == [True, 64 * 1000 * 4]
    assert report["gone"] and report["at_the_end"] == 0
    trace = open_trace(tmp_path / "trace")
    assert trace.before_bytes == report["held_bytes"]
    assert [e.label for e in grouped(live_at(trace, Moment(0)), By.OP)] == [BEFORE]
    assert len(live_at(trace)) == 0
    assert trace.total_bytes[-1] == 0


def test_what_cpp_alone_held_before_is_in_no_sum_but_below_a_bound(tmp_path: Path) -> None:
    report = traced(tmp_path, "hidden")
    trace = open_trace(tmp_path / "trace")
    assert trace.before_bytes == report["before_bytes"] == report["held_bytes"]
    assert not trace.is_whole and trace.uncounted_bytes is not None
    assert report["hidden_bytes"] <= trace.uncounted_bytes < 1 << 30


def test_a_trace_ends_with_the_program(tmp_path: Path) -> None:
    assert traced(tmp_path, "ended")["allocated"] == 0
    trace = open_trace(tmp_path / "trace")
    assert trace.is_whole and live_at(trace).program_bytes == 4 * 1000


def test_events_are_told_to_whoever_filters_for_them(tmp_path: Path) -> None:
    report = traced(tmp_path, "told")
    size = 4 * 1000
    assert [(kind, op) for kind, op, *_ in report["every"]] == [
        ("op", "aten::ones"),
        ("allocation", "aten::empty"),
        ("op", "aten::mul"),
        ("allocation", "aten::mul"),
        ("free", ""),
        ("op", "aten::add"),
        ("allocation", "aten::add"),
        ("free", ""),
        ("free", ""),
    ]
    assert [event[3:] for event in report["large"]] == [[size, [0]]] * 3
    assert [event[:2] for event in report["above"]] == [["allocation", "aten::mul"], ["allocation", "aten::add"]]
    assert [event[1::3] for event in report["named"]] == [["aten::mul", [0]], ["aten::add", [1]]]
    assert report["at"][0][0] == "op" and report["at"][0][1] == "aten::mul"
    assert any("ExpBackward0" in op for op in report["backward"])
    assert report["quiet"] is True


def test_operators_are_counted_alike_under_a_dispatch_mode(tmp_path: Path) -> None:
    without, under = traced(tmp_path, "under_a_mode")["operators"]
    assert without == under > 1


def test_files_close_and_open_again_a_child_writes_nothing_and_a_full_disk_is_said(tmp_path: Path) -> None:
    report = traced(tmp_path, "files")
    assert report["child"] == 0
    assert not report["mapped_when_closed"]
    assert "/small/memory." in report["lost"]
    assert report["still_counted"] == 25000
    trace = open_trace(tmp_path / "trace")
    assert len(trace) >= report["records"]
    assert live_at(trace, Moment(0, 0, 9)).program_bytes >= 2 * 4 * 1000
    most = ((1 << 20) - 64) // 64  # the program may write 1 MiB into a file; records go out 64 at a time
    assert most - 64 < len(open_trace(tmp_path / "small")) <= most


def test_a_restored_processs_trace_goes_over_with_who_made_what(tmp_path: Path) -> None:
    report = traced(tmp_path, "carried")
    trace = open_trace(tmp_path / "again")
    before = [trace.allocation(int(row)) for row in trace.made if int(trace.kind[row]) == Kind.BEFORE]
    assert {(str(block.moment), block.site.outer_op) for block in before} == {
        ("1.2.1", "aten::ones"),
        ("1.2.2", "aten::zeros"),
    }
    assert all(block.site.own_frame is not None for block in before)
    assert [str(block.freed) for block in before if block.site.outer_op == "aten::ones"] == ["5.0.1"]
    assert int(trace.total_bytes[-1]) == report["allocated"] == 2 * 4000


def test_files_that_cannot_be_closed_or_opened_again_end_the_trace_alone(tmp_path: Path) -> None:
    report = traced(tmp_path, "cannot_reopen")
    gone, none_left, cut = report["lost"]
    assert "No such file" in gone and "Too many open files" in none_left and "third/memory." in cut
    trace = open_trace(tmp_path / "last")
    assert live_at(trace, Moment(0, 0, 9)).program_bytes == report["allocated"] == 3 * 4000


def test_a_killed_process_leaves_its_trace(tmp_path: Path) -> None:
    report = traced(tmp_path, "killed", code=-signal.SIGKILL)
    trace = open_trace(tmp_path / "trace")
    assert len(trace) == report["records"]
    assert int(trace.total_bytes[-1]) == report["allocated"] == 30 * 4000
    assert {str(trace.moment(row)) for row in trace.made} >= {"1.0.1", "2.0.10", "3.0.10"}


def test_above_a_cap_the_program_is_out_of_memory_and_may_go_on_with_less(tmp_path: Path) -> None:
    report = traced(tmp_path, "capped")
    is_runtime_error, text = report["raised"]
    assert is_runtime_error
    for word in ("DefaultCPUAllocator: can't allocate memory", "out of memory", "16000 bytes", "2.1.2", "Look there."):
        assert word in text
    assert report["refused"] == 1
    assert report["allocated"] == 4 * report["kept"]
    (refused,) = refusals(open_trace(tmp_path / "trace"))
    assert (refused.size_bytes, refused.site.outer_op) == (16000, "aten::ones")


def test_torchs_own_viewer_reads_the_snapshot(tmp_path: Path) -> None:
    traced(tmp_path, "older")
    trace = open_trace(tmp_path / "trace")
    write_snapshot(trace, tmp_path / "snapshot.pickle")
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.origin is not None
    viewer = Path(torch.origin).parent / "cuda" / "_memory_viz.py"
    for view in ("trace_plot", "segment_plot", "trace", "stats"):
        to = ["-o", str(tmp_path / f"{view}.html")] if view.endswith("plot") else []
        command = [sys.executable, str(viewer), view, str(tmp_path / "snapshot.pickle"), *to]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "trace_plot.html").stat().st_size > 1000


def test_without_a_build_it_says_why(tmp_path: Path) -> None:
    why = traced(tmp_path, "missing")["why"]
    assert why.startswith("operators and allocations cannot be traced: ")
    assert "not built for torch" in why
