"""Snapshots of torch's allocator as memory traces. They are built by hand here, as `torch/cuda/memory.py` documents
them and `torch/cuda/_memory_viz.py` reads them: no GPU was at hand to write one."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from traces import TraceBuilder

from prismdbg.capsule.memory_format import RECORD, device_name
from prismdbg.cli.main import cli
from prismdbg.errors import CapsuleError, PrismError, UsageError
from prismdbg.importers import memory_snapshot, plain_pickle
from prismdbg.importers.memory_snapshot import is_snapshot, read_snapshot
from prismdbg.memory.live import live_at
from prismdbg.memory.peak import peak
from prismdbg.memory.refused import refusals
from prismdbg.memory.segments import reserved_ranges
from prismdbg.memory.snapshot import write_snapshot
from prismdbg.memory.trace import MemoryTrace, from_bytes, open_trace
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment

ROOT = Path(__file__).parents[3]
MIB, BASE, TIME_US = 1 << 20, 0x7F00_0000_0000, 1_790_000_000_000_000
TRAIN = {"filename": "/job/train.py", "line": 40, "name": "step"}
MAIN = {"filename": "/job/train.py", "line": 90, "name": "main"}
NATIVE = [
    {"filename": "??", "line": 0, "name": "at::_ops::empty_memory_format::redispatch(c10::DispatchKeySet)"},
    {"filename": "??", "line": 0, "name": "at::_ops::mm::call(at::Tensor const&, at::Tensor const&)"},
    {"filename": "/pytorch/torch/csrc/autograd/python_variable.cpp", "line": 7, "name": "torch::autograd::run"},
]


def entry(action: str, address: int, size: int, frames: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    told = {
        "action": action,
        "device_free" if action == "oom" else "addr": address,
        "size": size,
        "stream": 0,
        "time_us": TIME_US,
        "compile_context": "N/A",
        "user_metadata": "",
        "pool_id": (0, 0),
    }
    return told if frames is None else told | {"frames": frames}


def segment(address: int, size: int, *blocks: dict[str, Any], device: int = 0) -> dict[str, Any]:
    return {
        "device": device,
        "address": address,
        "total_size": size,
        "allocated_size": sum(block["size"] for block in blocks if block["state"] == "active_allocated"),
        "active_size": sum(block["size"] for block in blocks if block["state"] != "inactive"),
        "requested_size": sum(block["requested_size"] for block in blocks),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": list(blocks),
    }


def block(address: int, size: int, requested: int = 0, state: str = "active_allocated") -> dict[str, Any]:
    frames = [TRAIN] if requested else []
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}


def inactive(address: int, size: int) -> dict[str, Any]:
    return block(address, size, state="inactive")


def of_a_gpu() -> dict[str, Any]:
    """A block that is older than the history and freed in it, an older one that is still there, two that were made,
    one of them freed, and an allocation that was refused."""
    history = [
        entry("segment_alloc", BASE, 2 * MIB, NATIVE),
        entry("alloc", BASE, 1000, [*NATIVE, TRAIN, MAIN]),
        entry("free_requested", BASE + 4 * MIB, 5000),
        entry("free_completed", BASE + 4 * MIB, 5000),
        entry("alloc", BASE + MIB, 7000, [TRAIN, MAIN]),
        entry("free_requested", BASE, 1000, [MAIN]),
        entry("free_completed", BASE, 1000, [MAIN]),
        entry("oom", 3 * MIB, 80 << 30, [*NATIVE, TRAIN]),
        entry("snapshot", 0, 0),
    ]
    segments = [
        segment(BASE, 2 * MIB, inactive(BASE, MIB), block(BASE + MIB, MIB, 7000)),
        segment(BASE + 4 * MIB, 2 * MIB, inactive(BASE + 4 * MIB, MIB), block(BASE + 5 * MIB, MIB, 900)),
    ]
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "garbage_collection_threshold": 0.0, "expandable_segments": False}
    return {"segments": segments, "device_traces": [history, []], "allocator_settings": settings}


def written(folder: Path, value: object, protocol: int = 4) -> Path:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(value, protocol))
    return path


def read(path: Path) -> MemoryTrace:
    return from_bytes(*read_snapshot(path))


def memory(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["memory", *map(str, arguments)])


class TestWhatItSays:
    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    def test_blocks_and_their_times(self, tmp_path: Path, protocol: int) -> None:
        trace = read(written(tmp_path, of_a_gpu(), protocol))
        live = [live_at(trace, Moment(0, 0, number)).program_bytes for number in range(1, 10)]
        assert live == [5900, 5900, 6900, 6900, 1900, 8900, 8900, 7900, 7900]
        assert live_at(trace).program_bytes == 7900
        assert (trace.device_name, trace.before_bytes, trace.is_whole) == ("cuda:0", 5900, True)

    def test_the_peak_and_who_made_it(self, tmp_path: Path) -> None:
        highest = peak(read(written(tmp_path, of_a_gpu())))
        assert highest is not None and highest.allocation is not None
        assert (highest.size_bytes, highest.moment) == (8900, Moment(0, 0, 5))
        assert str(highest.allocation.site.own_frame) == "/job/train.py:40 in step"

    def test_operators_are_those_of_native_frames(self, tmp_path: Path) -> None:
        trace = read(written(tmp_path, of_a_gpu()))
        first = next(trace.allocation(int(row)) for row in trace.made if not trace.allocation(int(row)).is_before)
        assert (first.site.op, first.site.outer_op) == ("empty_memory_format", "mm")
        assert [frame.name for frame in first.site.frames] == ["step", "main"]

    def test_segments_as_they_were_before(self, tmp_path: Path) -> None:
        trace = read(written(tmp_path, of_a_gpu()))
        older = (BASE + 4 * MIB, BASE + 6 * MIB)
        assert reserved_ranges(trace, trace.row_at(Moment(0, 0, 1))) == [older]
        assert reserved_ranges(trace) == [(BASE, BASE + 2 * MIB), older]

    def test_what_the_first_entries_reserve_was_not_there_before(self, tmp_path: Path) -> None:
        told = {
            "segments": [segment(BASE, 2 * MIB, block(BASE, MIB, 9)), segment(BASE + 8 * MIB, 54 * MIB)],
            "device_traces": [
                [
                    entry("segment_alloc", BASE + 8 * MIB, 50 * MIB),
                    entry("segment_map", BASE + 58 * MIB, 4 * MIB),
                    entry("alloc", BASE + 8 * MIB, 1),
                ]
            ],
        }
        trace = read(written(tmp_path, told))
        reserved = [live_at(trace, Moment(0, 0, number)).reserved_bytes for number in (1, 2, 3)]
        assert reserved == [2 * MIB, 52 * MIB, 56 * MIB]

    def test_what_was_refused(self, tmp_path: Path) -> None:
        (refused,) = refusals(read(written(tmp_path, of_a_gpu())))
        assert (refused.size_bytes, refused.held_bytes, refused.site.outer_op) == (80 << 30, 7900, "mm")

    def test_without_a_history_it_is_what_was_held(self, tmp_path: Path) -> None:
        trace = read(written(tmp_path, of_a_gpu() | {"device_traces": [[]]}))
        highest = peak(trace)
        assert highest is not None
        assert (highest.size_bytes, highest.live.reserved_bytes, highest.allocation) == (7900, 4 * MIB, None)

    def test_a_block_that_waits_for_a_stream_is_held(self, tmp_path: Path) -> None:
        waits = block(BASE, MIB, 600, "active_awaiting_free")
        told = {"segments": [segment(BASE, MIB, waits)], "device_traces": [[entry("free_requested", BASE, 600)]]}
        assert live_at(read(written(tmp_path, told))).program_bytes == 600

    def test_blocks_of_older_snapshots_have_no_address(self, tmp_path: Path) -> None:
        told = of_a_gpu()
        for each in told["segments"]:
            for one in each["blocks"]:
                del one["address"]
        assert live_at(read(written(tmp_path, told))).program_bytes == 7900

    def test_devices_are_told_apart(self, tmp_path: Path) -> None:
        told = of_a_gpu()
        told["segments"].append(segment(BASE, MIB, block(BASE, MIB, 40), device=2))
        trace = read(written(tmp_path, told))
        assert trace.devices == (1, 3)
        assert [device_name(device) for device in trace.devices] == ["cuda:0", "cuda:2"]
        assert live_at(trace.on(3)).program_bytes == 40

    def test_a_lost_free_holds_nothing(self, tmp_path: Path) -> None:
        told = {"segments": [], "device_traces": [[entry("alloc", BASE, 10), entry("alloc", BASE, 30)]]}
        assert live_at(read(written(tmp_path, told))).program_bytes == 30

    def test_torchs_own_viewer_reads_the_same(self, tmp_path: Path) -> None:
        """So the example is of torch's format."""
        path = written(tmp_path, of_a_gpu())
        torch = importlib.util.find_spec("torch")
        assert torch is not None and torch.origin is not None
        viewer = Path(torch.origin).parent / "cuda" / "_memory_viz.py"
        for view in ("trace", "stats"):
            ran = subprocess.run(
                [sys.executable, str(viewer), view, str(path)], capture_output=True, text=True, check=False
            )
            assert ran.returncode == 0, ran.stderr


FRAMES = (
    (),
    (Frame("/job/train.py", 40, "step"),),
    (Frame("/job/model.py", 7, "forward"), Frame("/job/train.py", 40, "step")),
)
STEPS = st.lists(st.tuples(st.sampled_from("abfrx"), st.integers(1, 0x1000), st.integers(0, 2)), max_size=30)


@given(steps=STEPS, device=st.sampled_from([0, 1, 3]))
def test_what_we_wrote_is_written_again_to_the_byte(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]], device: int
) -> None:
    folder = tmp_path_factory.mktemp("snapshot")
    builder = TraceBuilder(folder / "trace", from_start=True, in_use_bytes=0)
    blocks: list[int] = []
    segments: list[int] = []
    if device:
        builder.reserve(0, 1 << 30, device)  # a GPU's blocks are in segments
    for number, (what, size, stack) in enumerate([("a", 8, 0), *steps]):
        if what == "a":
            op, outer = [("", ""), ("mm", ""), ("empty", "mm")][stack]
            blocks.append(builder.allocate(size, op, outer=outer, frames=FRAMES[stack], device=device))
        elif what == "b" and len(blocks) == 1:
            blocks.append(builder.before(size, device=device))
        elif what == "f" and blocks:
            builder.free(blocks.pop(size % len(blocks)))
        elif what == "r" and device:
            segments.append((1 << 40) + number * 4096)
            builder.reserve(segments[-1], size, device)
        elif what == "x" and segments:
            builder.release(segments.pop(size % len(segments)), 1, device)
    first, again = folder / "first.pickle", folder / "again.pickle"
    trace = open_trace(builder.write())
    write_snapshot(trace, first)
    write_snapshot(read(first), again)
    assert again.read_bytes() == first.read_bytes()
    assert live_at(read(first)).program_bytes == live_at(trace).program_bytes
    assert read(first).device_name == trace.device_name


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 1000)), min_size=1, max_size=40), st.integers(0, 40))
def test_what_was_before_a_history_that_was_cut(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[int, int]], cut: int
) -> None:
    """Each move frees what is at a place, or allocates there. Sums are those of the whole history."""
    live: dict[int, int] = {}
    history, sums = [], [0]
    for place, size in moves:
        address = BASE + place * MIB
        if address in live:
            history += [entry("free_completed", address, live.pop(address), [MAIN])]
        else:
            live[address] = size
            history += [entry("alloc", address, size, [TRAIN])]
        sums.append(sum(live.values()))
    cut = min(cut, len(history) - 1)
    there = [segment(at, MIB, block(at, MIB, size)) for at, size in live.items()]
    path = written(tmp_path_factory.mktemp("cut"), {"segments": there, "device_traces": [history[cut:]]})
    trace = read(path)
    told = [live_at(trace, Moment(0, 0, number)).program_bytes for number in range(1, len(history) - cut + 1)]
    assert [*told, live_at(trace).program_bytes] == sums[cut:]
    assert int(trace.total_bytes[-1]) == sums[-1]


class TestWhatIsNoSnapshot:
    @pytest.mark.parametrize(
        "value", [{"entries": [], "version": "2.10"}, [1, 2], "text", {"device_traces": 3, "segments": []}]
    )
    def test_other_pickles(self, tmp_path: Path, value: object) -> None:
        path = written(tmp_path, value)
        assert is_snapshot(path)
        with pytest.raises(CapsuleError, match=r"is not a memory snapshot|must be a list"):
            read_snapshot(path)

    def test_what_is_no_file_is_not_opened(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert not any(is_snapshot(tmp_path / name) for name in ("pipe", "missing", "."))

    def test_nothing_in_it_is_called(self, tmp_path: Path) -> None:
        class Attack:
            def __reduce__(self) -> tuple[Any, ...]:
                return os.mkdir, (str(tmp_path / "made"),)

        with pytest.raises(CapsuleError, match="pickle of plain data"):
            read_snapshot(written(tmp_path, {"segments": Attack(), "device_traces": []}))
        assert not (tmp_path / "made").exists()

    @pytest.mark.parametrize(
        "change",
        [{"size": -1}, {"size": 1 << 60}, {"addr": -5}, {"addr": 1 << 63}, {"action": 3}, {"time_us": 1 << 60},
         {"frames": {}}, {"frames": [{"filename": "x"}]}, {"frames": [7]}],
    )  # fmt: skip
    def test_values_that_cannot_be(self, tmp_path: Path, change: dict[str, Any]) -> None:
        told = {"segments": [], "device_traces": [[entry("alloc", BASE, 8, [TRAIN]) | change]]}
        with pytest.raises(CapsuleError):
            read_snapshot(written(tmp_path, told))

    def test_bounds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = written(tmp_path, of_a_gpu())
        for name, bound, said in (
            ("MAX_SNAPSHOT_BYTES", 100, "larger than"),
            ("MAX_ENTRIES", 8, "more than 8 entries"),
            ("MAX_SEGMENTS", 1, "has 2 segments, more than 1"),
            ("MAX_BLOCKS", 3, "more than 3 blocks"),
            ("MOST_FRAMES", 2, "more than 2 frames"),
        ):
            with monkeypatch.context() as patch, pytest.raises(CapsuleError, match=said):
                patch.setattr(memory_snapshot, name, bound)
                read_snapshot(path)
        told: dict[str, Any] = {"segments": [segment(BASE, 8, device=128)], "device_traces": []}
        with pytest.raises(CapsuleError, match="not between 0 and 127"):
            read_snapshot(written(tmp_path, told))

    def test_as_many_entries_as_documented_can_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of a thousandth of all bounds, in torch's form."""
        page = " ".join((ROOT / "docs/other-tools.md").read_text().split())
        (documented,) = re.findall(r"up to about ([\d,]+) entries", page)
        count = int(documented.replace(",", "")) // 1000
        history = [entry("alloc", BASE + n * MIB, 1000, [TRAIN, MAIN]) | {"pool_id": (0, n)} for n in range(count)]
        told = of_a_gpu() | {"device_traces": [history]}
        monkeypatch.setattr(plain_pickle, "MOST_VALUES", plain_pickle.MOST_VALUES // 1000)
        records, _ = read_snapshot(written(tmp_path, told))
        assert len(records) >= count * RECORD.size

    @pytest.mark.parametrize("of", ["blocks", "entries"])
    def test_a_list_that_is_listed_again_and_again_is_refused(self, tmp_path: Path, of: str) -> None:
        """Wrong values at the end, which are never looked at: the count comes first."""
        entries = [{"action": "oom", "size": 1}] * 20_000 + [7]
        blocks = [segment(BASE, MIB, *[block(BASE, 1)] * 2000)] * 1000 + [7]
        told = {"segments": blocks if of == "blocks" else [], "device_traces": [entries] * 100}
        path = written(tmp_path, told)
        assert path.stat().st_size < 100_000
        with pytest.raises(CapsuleError, match=f"has more than [0-9]+ {of}"):
            read_snapshot(path)

    def test_a_long_text_of_frames_counts_as_often_as_it_is_listed(self, tmp_path: Path) -> None:
        """Otherwise it would be searched for operators a million times."""
        frame = {"filename": "a.cpp", "line": 1, "name": "at::_ops::" + "x" * 400_000}
        path = written(tmp_path, {"segments": [], "device_traces": [[entry("oom", 0, 1, [frame] * 20_000)]]})
        with pytest.raises(CapsuleError, match=f"more than {memory_snapshot.MOST_FRAMES} frames in its stacks"):
            read_snapshot(path)

    @given(at=st.integers(0, 10_000), byte=st.integers(0, 255))
    def test_a_damaged_one_is_a_trace_or_an_error(
        self, tmp_path_factory: pytest.TempPathFactory, at: int, byte: int
    ) -> None:
        data = bytearray(pickle.dumps(of_a_gpu(), 4))
        data[at % len(data)] = byte
        path = tmp_path_factory.mktemp("damaged") / "snapshot.pickle"
        path.write_bytes(data)
        try:
            trace = read(path)
        except PrismError:
            return
        assert np.all(trace.total_bytes >= 0)


class TestTheCommand:
    def test_the_peak_is_shown(self, tmp_path: Path) -> None:
        said = memory(written(tmp_path, of_a_gpu()), "--by", "stack")
        assert said.exit_code == 0, said.output
        assert "8.7 KiB (8900 bytes) at 0.0.5" in said.output
        assert "0.0.N is the N-th entry of the device's history" in said.output
        assert "/job/train.py:40 in step" in said.output

    def test_options_that_make_sense(self, tmp_path: Path) -> None:
        path = written(tmp_path, of_a_gpu())
        assert "7.7 KiB (7900 bytes) at 0.0.8" in memory(path, "--at", "0.0.8").output
        assert "2.9 KiB (3000 bytes)" in memory(path, "--diff", "0.0.2", "0.0.6").output
        assert json.loads(memory(path, "--json", "--begin", "0.0.5").stdout)["peak_bytes"] == 8900
        assert "open it at" in memory(path, "--flame", tmp_path / "f.json").output
        assert memory(path, "--export", tmp_path / "again.pickle").exit_code == 0
        assert live_at(read(tmp_path / "again.pickle")).program_bytes == 7900

    @pytest.mark.parametrize(
        ("options", "said"),
        [(["--rank", "0"], "--rank needs a RUN or a CAPSULE"), (["--until", "1.1"], "--until needs"),
         (["--keep", "x"], "--keep needs"), (["--with-backend"], "--with-backend needs"),
         (["--runtime", "local"], "--runtime needs"), (["--by", "age"], "has no steps"),
         (["--by", "module"], "has no modules"), (["--device", "cpu"], "no memory of cpu")],
    )  # fmt: skip
    def test_options_that_need_a_job_are_refused(self, tmp_path: Path, options: list[str], said: str) -> None:
        ran = memory(written(tmp_path, of_a_gpu()), *options)
        assert isinstance(ran.exception, UsageError) and said in str(ran.exception)

    def test_without_operators_stacks_are_shown(self, tmp_path: Path) -> None:
        told = {"segments": [], "device_traces": [[entry("alloc", BASE, 10, [TRAIN])]]}
        path = written(tmp_path, told)
        assert "/job/train.py:40 in step" in memory(path).output.splitlines()[-1]
        ran = memory(path, "--by", "op")
        assert isinstance(ran.exception, UsageError) and "no operators" in str(ran.exception)

    def test_without_a_history_it_says_so(self, tmp_path: Path) -> None:
        said = memory(written(tmp_path, of_a_gpu() | {"device_traces": [[]]}))
        assert "without a history" in said.output
