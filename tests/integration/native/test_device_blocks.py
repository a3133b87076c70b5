"""Memory of other devices than the CPU in a trace, as torch's allocator would tell of it: no GPU is needed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import warm_torch

from prismdbg.capsule.memory_format import CPU
from prismdbg.jobs.injection import cache_dir
from prismdbg.memory.live import live_at
from prismdbg.memory.peak import peak
from prismdbg.memory.refused import refusals
from prismdbg.memory.segments import reserved_ranges
from prismdbg.memory.snapshot import write_snapshot
from prismdbg.memory.trace import MemoryTrace, open_trace
from prismdbg.model.moment import Moment
from prismdbg.rank.native import build as native_build

PROGRAM = Path(__file__).parents[1] / "programs" / "device_blocks.py"
BOUND_S = 120
MIB = 1 << 20

pytestmark = pytest.mark.job


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    native_build.build(cache_dir())
    folder = tmp_path_factory.mktemp("devices")
    ((code, said),) = warm_torch.run((PROGRAM, cache_dir(), folder))
    assert code == 0, said
    return folder


@pytest.fixture
def report(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text())


@pytest.fixture
def trace(folder: Path) -> MemoryTrace:
    report = json.loads((folder / "report.json").read_text())
    return open_trace(folder / "trace", report["stats"]["records"])


def test_each_device_has_sums_of_its_own(report: Any) -> None:
    devices = report["stats"]["devices"]
    assert devices["cuda:0"] == {"allocated": 1300, "backend": 0, "peak": 501_000, "reserved": 5 * MIB}
    assert devices["cuda:1"] == {"allocated": 10, "backend": 0, "peak": 10, "reserved": 0}
    assert report["kept"] <= devices["cpu"]["allocated"] < 501_000
    assert (report["stats"]["device"], report["stats"]["peak"]) == ("cuda:0", 501_000)
    assert report["found"] == "cuda:0"


def test_the_trace_is_of_the_device_with_the_largest_peak(trace: MemoryTrace) -> None:
    assert trace.device_name == "cuda:0" and trace.devices == (1, CPU, 2)
    highest = peak(trace)
    assert highest is not None and (highest.size_bytes, highest.live.reserved_bytes) == (501_000, 2 * MIB)
    assert live_at(trace).program_bytes == int(trace.total_bytes[-1]) == 1300
    assert [live_at(trace.on(device)).program_bytes for device in (2, 1)] == [10, 1300]


def test_segments_may_go_back_in_other_pieces(trace: MemoryTrace) -> None:
    assert int(trace.reserved_bytes[-1]) == 5 * MIB
    assert reserved_ranges(trace) == [
        (0x1000_0000, 0x1000_0000 + 2 * MIB),
        (0x2000_0000, 0x2010_0000),
        (0x2020_0000, 0x2040_0000),
    ]


def test_what_the_allocator_refused_is_in_the_trace(trace: MemoryTrace) -> None:
    assert [(one.size_bytes, one.held_bytes, one.moment) for one in refusals(trace)] == [(1 << 40, 1000, Moment(1))]


def test_a_breakpoint_on_an_allocation_is_told_when_its_operator_ends(report: Any, trace: MemoryTrace) -> None:
    """The allocator's lock is held where the block is made: nobody may wait there."""
    assert report["inside"] == ["not yet told"]
    (told,) = (event for event in report["seen"] if event[2] == "cuda:0")
    assert told[0] == "allocation" and "OnGpuBackward" in told[1] and told[3:] == [300, 1300]
    block = trace.allocation(int(trace.made[-1]))
    assert "OnGpuBackward" in block.site.outer_op
    assert block.site.own_frame is not None and block.site.own_frame.filename.endswith("device_blocks.py")


def test_whoever_is_told_may_change_while_blocks_are_made(report: Any) -> None:
    """Neither waits for the other: one has Python's lock, which the other needs to let go of the last callback."""
    assert report["steered"] == 50_000


def test_torchs_own_viewer_reads_segments_with_gaps(trace: MemoryTrace, tmp_path: Path) -> None:
    write_snapshot(trace, tmp_path / "snapshot.pickle")
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.origin is not None
    viewer = Path(torch.origin).parent / "cuda" / "_memory_viz.py"
    for view in ("segment_plot", "trace", "stats"):
        to = ["-o", str(tmp_path / "plot.html")] if view == "segment_plot" else []
        command = [sys.executable, str(viewer), view, str(tmp_path / "snapshot.pickle"), *to]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)
        assert done.returncode == 0, done.stderr
