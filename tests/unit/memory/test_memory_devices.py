"""A memory trace of several devices: each has its own sums, and what shows one says which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traces import TraceBuilder

from prismdbg.capsule.memory_format import BEGAN, CPU, device_name, device_number
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import UsageError
from prismdbg.memory.curve import curve
from prismdbg.memory.live import live_at
from prismdbg.memory.peak import peak
from prismdbg.memory.snapshot import snapshot
from prismdbg.memory.trace import MemoryTrace, open_trace
from prismdbg.model.moment import Moment
from prismdbg.render.console import pairs
from prismdbg.render.memory_text import curve_text, for_terminal
from prismdbg.render.stop_text import event_line

GPU, OTHER = 1, 2
KIB = 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """On the CPU 700 at most; on the GPU 30 from before, 5,000 for an operator, 200 to the end; 16 KiB are reserved."""
    builder = TraceBuilder(tmp_path / "trace", from_start=False)
    builder.before(30, device=GPU)
    builder.reserve(0x1000, 16 * KIB, GPU)
    builder.now = Moment(1)
    builder.allocate(700, "aten::empty")
    builder.operator("aten::mm")
    high = builder.allocate(5000, "aten::mm", device=GPU)
    builder.operator("aten::add")
    builder.allocate(200, "aten::add", device=GPU)
    builder.free(high)
    builder.reserve(0x9000, 4 * KIB, GPU)
    builder.release(0x9000, 3 * KIB, GPU)
    builder.allocate(1, device=OTHER)
    return builder.write()


@pytest.fixture
def trace(folder: Path) -> MemoryTrace:
    return open_trace(folder)


def test_sums_of_devices_are_never_added_up(trace: MemoryTrace) -> None:
    assert trace.devices == (GPU, CPU, OTHER)
    assert {trace.on(device).device_name: live_at(trace.on(device)).program_bytes for device in trace.devices} == {
        "cuda:0": 230,
        "cpu": 700,
        "cuda:1": 1,
    }
    highest = peak(trace)
    assert highest is not None and (highest.size_bytes, highest.moment) == (5230, Moment(1, 0, 2))
    assert int(curve(trace).high_bytes.max()) == 5230
    assert int(curve(trace.on(CPU)).high_bytes.max()) == 700


def test_between_the_records_of_a_device_its_total_stays(trace: MemoryTrace) -> None:
    assert trace.total_bytes.tolist() == [30, 30, 30, 5030, 5030, 5230, 230, 230, 230]
    assert trace.on(CPU).total_bytes.tolist() == [700, 700, 700]


def test_an_operator_has_the_same_moment_on_every_device(trace: MemoryTrace) -> None:
    assert trace.end == trace.on(CPU).end == trace.on(OTHER).end == Moment(1, 0, 2)
    row = trace.row_at(Moment(1, 0, 2))
    assert trace.records_before(row) == 5 and trace.records_before(len(trace)) == 11


def test_a_gpus_allocator_tells_all_and_the_cpus_does_not(trace: MemoryTrace) -> None:
    assert trace.is_whole and trace.uncounted_bytes == 0
    assert not trace.on(CPU).is_whole


def test_a_device_without_memory_is_refused_and_the_others_are_named(trace: MemoryTrace) -> None:
    with pytest.raises(UsageError, match="no memory of cuda:4") as raised:
        trace.on(5)
    assert "cuda:0, cpu, cuda:1" in raised.value.hint


def test_what_is_reserved_is_known_at_every_moment(trace: MemoryTrace) -> None:
    assert [live_at(trace, at).reserved_bytes for at in (Moment(1), None)] == [16 * KIB, 17 * KIB]
    of_cpu = live_at(trace.on(CPU))
    assert (of_cpu.reserved_bytes, of_cpu.unused_bytes) == (0, 0) != (of_cpu.program_bytes, 0)


def test_what_is_unused_is_in_no_block_whichever_are_looked_at(tmp_path: Path) -> None:
    builder = TraceBuilder(tmp_path / "trace")
    builder.reserve(0x1000, 16 * KIB, GPU)
    builder.allocate(1000, device=GPU)
    builder.now = Moment(1)
    builder.allocate(300, device=GPU, backend=True)
    builder.allocate(200, device=GPU)
    inside = peak(open_trace(builder.write()), Moment(1), made_inside=True)
    assert inside is not None and inside.size_bytes == 200
    assert inside.live.unused_bytes == 16 * KIB - 1500


@pytest.mark.parametrize("name", ["cpu", "cuda:0", "cuda:12"])
def test_devices_have_the_names_that_torch_has(name: str) -> None:
    assert device_name(device_number(name)) == name


def test_the_snapshot_has_segments_with_what_is_free_in_them(trace: MemoryTrace) -> None:
    """A block that is in no known segment is one of its own."""
    made = snapshot(trace)
    assert [(s["address"], s["total_size"], [b["state"] for b in s["blocks"]]) for s in made["segments"]] == [
        (0x1000, 16 * KIB, ["active_allocated", "inactive", "active_allocated", "inactive"]),
        (0x9C00, KIB, ["inactive"]),
    ]
    assert all(s["device"] == 0 and s["total_size"] == sum(b["size"] for b in s["blocks"]) for s in made["segments"])
    assert {e["action"] for e in made["device_traces"][0]} > {"segment_alloc", "segment_free"}
    other = snapshot(trace.on(OTHER))
    assert [len(events) for events in other["device_traces"]] == [0, 1] and other["segments"][0]["device"] == 1


def test_the_command_says_which_device_it_shows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["memory", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "cuda:0; also traced: cpu, cuda:1" in shown
    assert (
        "16.0 KiB (16384 bytes) by torch's allocator" in shown and "10.9 KiB (11154 bytes) of it in no block" in shown
    )
    assert main.run(["memory", str(folder), "--device", "cpu", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["device"], told["peak_bytes"], told["reserved_bytes"]) == ("cpu", 700, 0)


def test_a_device_that_is_none_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["memory", str(folder), "--device", "gpu"]) == ExitCode.USAGE
    assert "'gpu' is not a device" in capsys.readouterr().err


def test_a_trace_without_gpus_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads((folder / BEGAN).read_text())
    (folder / BEGAN).write_text(json.dumps(told | {"untraced": "built without CUDA"}))
    assert main.run(["memory", str(folder), "--device", "cpu"]) == 0
    assert "memory of GPUs is not traced: built without CUDA" in capsys.readouterr().out


def test_a_curve_names_its_device_only_where_there_is_a_choice(trace: MemoryTrace, tmp_path: Path) -> None:
    assert "cuda:0: " in curve_text(curve(trace))
    builder = TraceBuilder(tmp_path / "cpu")
    builder.allocate(10)
    shown = curve_text(curve(open_trace(builder.write())))
    assert "cpu" not in shown
    assert "┬" not in shown, "it has no steps"


@pytest.mark.parametrize(
    ("device", "shown"), [("cuda:1", "4.0 KiB on cuda:1 in aten::mm"), ("cpu", "4.0 KiB in aten::mm")]
)
def test_a_stop_at_an_allocation_names_a_gpu(device: str, shown: str) -> None:
    event = {"kind": "allocation", "profiling_name": "aten::mm", "size_bytes": 4096, "device": device}
    assert event_line(event) == f"allocation of {shown}"


def test_a_terminal_shows_a_row_of_the_table_in_a_line_and_a_program_reads_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stack = " < ".join(["/opt/train/model.py:53 in forward", *(f"train.py:{line}" for line in range(70, 80))])
    text = f"growth  {'2.6 MiB ' * 20}\n\n   size  blocks  of\n1.0 MiB       4  {stack}"
    monkeypatch.setenv("COLUMNS", "80")
    assert for_terminal(text) == text
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    above, _, table = for_terminal(text).partition("\n\n")
    assert above.split() == text.partition("\n\n")[0].split()
    assert all(len(row) <= 80 for row in above.split("\n"))
    assert all(len(row) <= 80 for row in table.split("\n"))
    assert table.startswith("   size  blocks  of\n1.0 MiB       4  model.py:53 in forward < … < ")
    assert table.endswith(" < train.py:79")


def test_in_a_terminal_a_value_that_goes_on_in_a_row_stands_below_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pairs([("peak", "12.0 MiB"), ("live at end of trace", "a longish value " * 6 + "\nand " * 2 + "more " * 20)])
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    first, second, *others = for_terminal(f"{rows}\n\nsize  blocks  of").partition("\n\n")[0].split("\n")
    assert first == "peak                  12.0 MiB" and second.startswith("live at end of trace  a longish value")
    assert len(others) > 3 and all(row[:22].isspace() and row[22:23].strip() for row in others)
