"""Memory traces read as columns: live blocks, peaks, curves, groups, differences, the export."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_log import TinyLog
from traces import CAPACITY, TraceBuilder, header_of

from prismdbg.capsule import memory_format, memory_reader
from prismdbg.capsule.log.format import event_segment
from prismdbg.capsule.memory_format import Kind
from prismdbg.capsule.memory_reader import TraceParts, read_parts
from prismdbg.capsule.new_file import check_place
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import CapsuleError, FacilityError, UsageError
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.memory.curve import curve
from prismdbg.memory.difference import diff
from prismdbg.memory.flame import write_flame
from prismdbg.memory.grouping import BACKEND, BEFORE, By, grouped, nested, stack_label
from prismdbg.memory.live import live_at
from prismdbg.memory.peak import peak
from prismdbg.memory.refused import refusals
from prismdbg.memory.snapshot import snapshot, write_snapshot
from prismdbg.memory.trace import open_trace
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.render.answer_text import answer_text
from prismdbg.render.memory_text import live_json
from prismdbg.session import answers
from prismdbg.settings.rank_config import RANK_MEMORY

INSIDE = Frame("/x/site-packages/torch/nn/linear.py", 130, "forward")
OWN = Frame("/home/me/model.py", 53, "forward")
MAIN = Frame("/home/me/train.py", 70, "main")


@pytest.fixture
def builder(tmp_path: Path) -> TraceBuilder:
    return TraceBuilder(tmp_path / "trace")


def training(builder: TraceBuilder) -> Path:
    """100 bytes from before; step 0: 30 live on, 500 come and go while the backend holds 7; step 1: 40 leak."""
    old = builder.before(100)
    builder.operator("aten::linear")
    builder.allocate(30, "aten::addmm", outer="aten::linear", module="up", frames=(INSIDE, OWN, MAIN))
    builder.operator("aten::mul")
    high = builder.allocate(500, "aten::mul", frames=(OWN, MAIN))
    builder.now = Moment(0, 1)
    staging = builder.allocate(7, "c10d::allreduce_", backend=True)
    builder.free(high)
    builder.free(staging)
    builder.now = Moment(1)
    builder.operator("aten::add")
    builder.allocate(40, "aten::add", frames=(MAIN,))
    builder.free(old)
    return builder.write()


def test_a_trace_that_is_removed_while_it_is_read_is_an_error_that_says_so(
    builder: TraceBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A debugger traces a rank anew while its screen reads: the screen ended with a traceback."""
    folder = training(builder)

    def then_removed(of: Path) -> TraceParts:
        parts = read_parts(of)
        parts.spans[0].path.unlink()
        return parts

    monkeypatch.setattr("prismdbg.memory.trace.read_parts", then_removed)
    with pytest.raises(CapsuleError, match=r"memory\.00000\.seg was removed while it was read"):
        open_trace(folder)


def test_a_block_from_before_that_is_found_late_was_there_all_the_time(tmp_path: Path) -> None:
    builder = TraceBuilder(tmp_path / "trace")
    builder.before(100)
    builder.now = Moment(1, 1)
    builder.allocate(30)
    builder.now = Moment(1, 2)
    bucket = builder.before(50)
    builder.now = Moment(1, 3)
    builder.free(bucket)
    trace = open_trace(builder.write())
    assert trace.total_bytes.tolist() == [150, 180, 180, 130]
    assert [live_at(trace, Moment(1, at)).program_bytes for at in (1, 2, 3)] == [150, 180, 180]
    highest = peak(trace)
    assert highest is not None and highest.size_bytes == 180


def test_names_that_are_cut_while_they_are_read(builder: TraceBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file server, say. What was read until then is used, or the trace is called damaged; no signal ends us."""
    for number in range(4000):
        builder.allocate(1, f"aten::operator_{number}")
    folder = builder.write()
    named, path = memory_reader._name, folder / event_segment(0)

    def while_it_is_cut(*what: Any) -> None:
        os.truncate(path, 100)
        named(*what)

    assert path.stat().st_size > 2 * 64 << 10, "more than is read at once"
    monkeypatch.setattr(memory_reader, "_name", while_it_is_cut)
    try:
        assert 0 < len(read_parts(folder).texts) < 4000
    except CapsuleError as error:
        assert "was cut or altered" in str(error.hint)


def test_what_is_live_is_known_at_every_moment(builder: TraceBuilder) -> None:
    trace = open_trace(training(builder))
    sizes = {str(m): live_at(trace, m).program_bytes for m in (Moment(0, 0, 1), Moment(0, 1), Moment(1), Moment(9))}
    assert sizes == {"0.0.1": 100, "0.1": 630, "1.0": 130, "9.0": 70}
    assert live_at(trace, Moment(1)).before_bytes == 100
    assert live_at(trace).before_bytes == 0
    assert live_at(trace, Moment(0, 0, 1)).backend_bytes == 0


def test_totals_in_the_records_are_what_the_blocks_add_up_to(builder: TraceBuilder) -> None:
    trace = open_trace(training(builder))
    for row in range(len(trace)):
        lives = (trace.made <= row) & (trace.freed > row)
        own = trace.made[lives & ~trace.is_backend[trace.made]]
        assert trace.total_bytes[row] == trace.size_bytes[own].sum(), trace.moment(row)


def test_the_peak_is_named_by_the_allocation_that_made_it(builder: TraceBuilder) -> None:
    found = peak(open_trace(training(builder)))
    assert found is not None and found.allocation is not None
    assert (found.size_bytes, str(found.moment)) == (630, "0.0.2")
    assert (found.allocation.site.op, found.allocation.site.own_frame) == ("aten::mul", OWN)
    assert found.live.program_bytes == 630


def test_a_peak_counts_the_backend_or_only_the_stretch_where_that_is_asked_for(builder: TraceBuilder) -> None:
    trace = open_trace(training(builder))
    with_backend = peak(trace, with_backend=True)
    profiled = peak(trace, made_inside=True)
    late = peak(trace, begin=Moment(1), made_inside=True)
    assert with_backend is not None and with_backend.size_bytes == 637
    assert profiled is not None and profiled.size_bytes == 530  # what was there before does not count
    assert late is not None and (late.size_bytes, late.live.program_bytes) == (40, 40)
    assert peak(trace, begin=Moment(5)) is None


def test_a_curve_with_few_points_still_has_the_peak(builder: TraceBuilder) -> None:
    trace = open_trace(training(builder))
    drawn = curve(trace, points=3)
    assert len(drawn) == 3
    assert drawn.high_bytes.max() == 630
    assert drawn.low_bytes.min() == 70
    assert drawn.high_bytes[drawn.peak_point] == 630
    assert [step for step, _ in drawn.step_points] == [0, 1]
    late = curve(trace, 3, Moment(1), made_inside=True)
    assert (late.high_bytes.max(), late.is_least) == (40, False)
    assert drawn.point_at(Moment(1)) == drawn.step_points[1][1]


def test_an_empty_stretch_has_an_empty_curve(builder: TraceBuilder) -> None:
    assert len(curve(open_trace(training(builder)), begin=Moment(7))) == 0


def test_blocks_are_grouped_and_the_rest_is_told_apart(builder: TraceBuilder) -> None:
    live = live_at(open_trace(training(builder)), Moment(0, 1, 1))
    assert [(e.label, e.size_bytes) for e in grouped(live, By.OP)] == [(BEFORE, 100), ("aten::addmm", 30)]
    assert {e.label for e in grouped(live, By.MODULE)} == {BEFORE, "up"}
    stack = next(e for e in grouped(live, By.STACK) if e.label != BEFORE)
    assert stack.label == "/home/me/model.py:53 in forward < train.py:70"
    assert stack.frames == (INSIDE, OWN, MAIN)
    assert [e.label for e in grouped(live, By.SIZE)] == [BEFORE, "30 bytes each"]
    told = {one["label"]: one for one in live_json(live, Moment(0, 1, 1), grouped(live, By.STACK))["groups"]}
    assert [frame["line"] for frame in told[stack.label]["frames"]] == [INSIDE.line, OWN.line, MAIN.line]
    assert told[stack.label]["frames"][1] == {"filename": OWN.filename, "line": OWN.line, "name": OWN.name}
    assert "frames" not in told[BEFORE]


def test_a_deep_stack_still_names_the_line_of_the_script_that_led_there(builder: TraceBuilder) -> None:
    """The same line of a model is gone through by training and by what else the script does with it."""
    inner = [Frame("/home/me/model.py", line, "forward") for line in (40, 39, 66, 84)]
    for line in (54, 67):
        builder.allocate(8, "aten::mm", frames=(*inner, Frame("/home/me/train.py", 34, "loss_of"), *at_main(line)))
    found = grouped(live_at(open_trace(builder.write())), By.STACK)
    there = "/home/me/model.py:40 in forward < model.py:39 < model.py:66 < model.py:84 < ... < "
    assert {entry.label for entry in found} == {f"{there}train.py:{line} < train.py:76" for line in (54, 67)}
    short = {stack_label(entry.frames, whole_path=False) for entry in found}
    assert short == {label.removeprefix("/home/me/") for label in (entry.label for entry in found)}


def at_main(line: int) -> tuple[Frame, Frame]:
    return Frame("/home/me/train.py", line, "main"), Frame("/home/me/train.py", 76, "<module>")


def test_the_backends_own_are_a_group(builder: TraceBuilder) -> None:
    builder.allocate(5, backend=True)
    builder.allocate(3, "aten::mm")
    found = grouped(live_at(open_trace(builder.write())), By.OP)
    assert [(entry.label, entry.size_bytes) for entry in found] == [(BACKEND, 5), ("aten::mm", 3)]


def test_ages_are_counted_in_steps(builder: TraceBuilder) -> None:
    for step in (0, 90, 99, 100):
        builder.now = Moment(step)
        builder.allocate(step + 1)
    ages = {entry.label: entry.size_bytes for entry in grouped(live_at(open_trace(builder.write())), By.AGE)}
    assert ages == {
        "allocated in this step": 101,
        "1 step old": 100,
        "10 to 99 steps old": 91,
        "100 steps or older": 1,
    }


def test_groups_nest_into_a_tree_that_adds_up(builder: TraceBuilder) -> None:
    tree = nested(live_at(open_trace(training(builder)), Moment(0, 1)), (By.MODULE, By.OP))
    assert sum(node.size_bytes for node in tree) == 630
    by_label = {node.label: node for node in tree}
    assert [child.label for child in by_label["no module"].children] == ["aten::mul"]
    assert by_label[BEFORE].children == ()


def test_a_difference_says_what_leaked_and_what_went(builder: TraceBuilder) -> None:
    found = diff(open_trace(training(builder)), Moment(1), Moment(2))
    assert [entry.label for entry in grouped(found.made, By.OP)] == ["aten::add"]
    assert [entry.label for entry in grouped(found.gone, By.OP)] == [BEFORE]
    assert found.growth_bytes == -60


def test_a_reversed_difference_is_refused(builder: TraceBuilder) -> None:
    with pytest.raises(UsageError, match=r"2\.0 is later than 1\.0"):
        diff(open_trace(training(builder)), Moment(2), Moment(1))


@pytest.mark.parametrize("here", [None, Moment(15, 3)], ids=["of a file", "of a rank that stands"])
def test_moments_outside_the_trace_are_refused_and_its_range_is_named(
    builder: TraceBuilder, here: Moment | None
) -> None:
    builder.before(100)  # listed while the rank is not told yet where it stands
    builder.now = Moment(12, 2)
    builder.operator("aten::mm")
    builder.now = Moment(15, 1)
    builder.allocate(4)
    trace = open_trace(builder.write())
    trace.require(Moment(12, 2), Moment(14, 9), Moment(15, 1), *([here] if here else [Moment(16)]), here=here)
    for outside in (Moment(0), Moment(12, 1), Moment(99, 1), *([Moment(15, 4)] if here else [])):
        with pytest.raises(UsageError, match=rf"{outside} .*12\.2 to {here or '15.1'}"):
            trace.require(outside, here=here)


def test_a_thread_that_stores_its_record_late_does_not_disorder_moments(builder: TraceBuilder) -> None:
    builder.now = Moment(3, 2)
    builder.allocate(1)
    builder.now = Moment(3, 1, 4)  # another thread, which had looked at the place before
    builder.allocate(2)
    builder.now = Moment(3, 3)
    builder.allocate(4)
    assert live_at(open_trace(builder.write()), Moment(3, 3)).program_bytes == 3


def test_several_segments_are_one_trace(tmp_path: Path) -> None:
    builder = TraceBuilder(tmp_path / "trace", capacity=4)
    for size_bytes in range(1, 12):
        builder.allocate(size_bytes)
    assert live_at(open_trace(builder.write())).program_bytes == sum(range(1, 12))


def test_what_lies_behind_the_count_is_of_another_time(builder: TraceBuilder) -> None:
    """A process that was put back writes over what it had written later."""
    folder = training(builder)
    whole = open_trace(folder)
    segment = folder / memory_format.segment_name(0)
    data = bytearray(segment.read_bytes())
    head = list(memory_format.HEADER.unpack_from(data))
    head[-1] = 3
    memory_format.HEADER.pack_into(data, 0, *head)
    segment.write_bytes(data)
    assert len(open_trace(folder)) == 3
    assert len(open_trace(folder, records=2)) == 2
    assert open_trace(folder).moment(2) == whole.moment(2)


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, b"X"), (8, b"\x09"), (20, b"\x08"), (48, b"\xff" * 8)],
    ids=["magic", "version", "size", "count"],
)
def test_a_damaged_trace_is_refused(builder: TraceBuilder, at: int, value: bytes) -> None:
    folder = training(builder)
    segment = folder / memory_format.segment_name(0)
    data = bytearray(segment.read_bytes())
    data[at : at + len(value)] = value
    segment.write_bytes(data)
    with pytest.raises(CapsuleError):
        open_trace(folder)


def test_damaged_names_are_refused(builder: TraceBuilder) -> None:
    folder = training(builder)
    names = folder / "events.00000.seg"
    data = bytearray(names.read_bytes())
    data[64:68] = b"\x05\x00\x00\x00"
    names.write_bytes(data)
    with pytest.raises(CapsuleError, match="damaged"):
        open_trace(folder)


def test_no_trace_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(CapsuleError, match="no memory trace") as caught:
        open_trace(tmp_path)
    assert "--memory" in caught.value.hint


def test_a_segment_made_a_moment_ago_is_empty(builder: TraceBuilder) -> None:
    folder = training(builder)
    (folder / memory_format.segment_name(0)).write_bytes(bytes(4096))
    assert len(open_trace(folder)) == 0
    assert peak(open_trace(folder)) is None


def test_the_snapshot_has_what_the_viewer_reads(builder: TraceBuilder, tmp_path: Path) -> None:
    trace = open_trace(training(builder))
    made = snapshot(trace)
    events = made["device_traces"][0]
    assert [e["action"] for e in events].count("alloc") == 4
    assert [e["action"] for e in events].count("free_completed") == 3
    assert [e["size"] for e in events if e["action"] == "free_completed"] == [500, 7, 100]
    assert events[0]["frames"][0]["name"] == "aten::addmm"
    assert sorted(s["total_size"] for s in made["segments"]) == [30, 40]
    write_snapshot(trace, tmp_path / "snapshot.pickle")
    data = (tmp_path / "snapshot.pickle").read_bytes()
    plain = {"GLOBAL", "STACK_GLOBAL", "REDUCE"}.isdisjoint(op.name for op, _, _ in pickletools.genops(data))
    assert plain and pickle.loads(data) == made  # noqa: S301  written a line above


@pytest.mark.parametrize("name", ["nowhere/x", "."])
def test_a_snapshot_that_cannot_be_written_is_said_in_a_line(builder: TraceBuilder, tmp_path: Path, name: str) -> None:
    trace = open_trace(training(builder))
    for refused in (lambda: check_place(tmp_path / name), lambda: write_snapshot(trace, tmp_path / name)):
        with pytest.raises(UsageError):
            refused()


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts a file system")
def test_on_a_full_disk_the_earlier_file_stays(builder: TraceBuilder, tmp_path: Path) -> None:
    trace, disk = open_trace(training(builder)), tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "prismdbg-test", disk], check=True)
    try:
        earlier, live = disk / "earlier", live_at(trace)
        earlier.write_bytes(bytes(64 << 10))
        for write in (lambda: write_snapshot(trace, earlier), lambda: write_flame(live, "live", earlier)):
            with pytest.raises(FacilityError, match="earlier cannot be written: No space left on device"):
                write()
            assert earlier.read_bytes() == bytes(64 << 10) and list(disk.iterdir()) == [earlier]
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_million_records_are_columns(tmp_path: Path) -> None:
    count = 1_000_000
    names = "kind flags device thread address size_bytes time_ns step collective op site block total_bytes"
    kinds = "u1 u1 <u2 <u4 <u8 <u8 <i8 <u4 <u4 <u4 <u4 <u8 <u8"
    rows = np.zeros(count, dtype=list(zip(names.split(), kinds.split(), strict=True)))
    rows["kind"][0::2], rows["kind"][1::2] = Kind.ALLOCATION, Kind.FREE
    rows["block"] = np.arange(count) // 2 + 1
    rows["size_bytes"] = 8
    rows["step"] = np.arange(count) // 1000
    rows["total_bytes"][0::2] = 8
    for index, start in enumerate(range(0, count, CAPACITY)):
        piece = rows[start : start + CAPACITY]
        data = header_of(index, len(piece)) + piece.tobytes()
        (tmp_path / memory_format.segment_name(index)).write_bytes(data)
    trace = open_trace(tmp_path)
    found = peak(trace)
    drawn = curve(trace, 250)
    assert found is not None and found.size_bytes == 8 and len(drawn) == 250
    assert len(trace) == count and (trace.freed == trace.made + 1).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--at", "99.1"], "99.1 is outside the trace, which goes from 0.0 to 1.0.1"),
        (["--diff", "1", "99.1"], "99.1 is outside the trace"),
        (["--begin", "99.1"], "99.1 is outside the trace"),
        (["--begin", "99.1", "--json"], "99.1 is outside the trace"),
        (["--begin", "0.1", "--end", "0.1", "--flame", "flame.json"], "nothing was traced in this range"),
        (["--diff", "1", "0.1"], "1.0 is later than 0.1"),
        (["--export", "/nowhere/at/all"], "no such directory: /nowhere/at"),
    ],
)
def test_the_command_refuses_in_one_line(
    builder: TraceBuilder, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main.run(["memory", str(training(builder)), *options]) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert shown.out == "" and said in shown.err


def test_an_empty_range_has_no_peak(builder: TraceBuilder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["memory", str(training(builder)), "--begin", "0.1", "--end", "0.1", "--json"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["peak_bytes"], found["groups"]) == (None, [])


@pytest.fixture
def traced_run(builder: TraceBuilder, tmp_path: Path) -> RunFolder:
    """Whose rank 0 has a trace."""
    run = RunFolder(tmp_path / "run")
    TinyLog(run.ranks / "0").issue(0, 1)
    write_json(run.run_json, {})
    shutil.copytree(training(builder), run.ranks / "0" / RANK_MEMORY)
    return run


@pytest.mark.parametrize("options", [("--keep", "kept"), ("--until", "1.1")], ids=lambda options: str(options[0]))
def test_a_recorded_trace_is_not_taken_for_what_a_replay_was_asked_for(
    traced_run: RunFolder, capsys: pytest.CaptureFixture[str], options: tuple[str, str]
) -> None:
    """Of a RUN and of a TRACE: neither can be replayed."""
    for path in (traced_run.path, traced_run.ranks / "0" / RANK_MEMORY):
        assert main.run(["memory", str(path), *options]) == ExitCode.USAGE
        assert f"{options[0]} needs a capsule: {path} has a recorded trace" in capsys.readouterr().err


def test_an_emulated_rank_with_a_trace_is_replayed_if_that_is_asked_for(
    traced_run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(path: Path, rank: int | None) -> Path:
        raise UsageError(f"the capsule of rank {rank} in {path}", hint="none is made here")

    write_json(traced_run.run_json, {"emulated": {"mesh": {"dp": 2}, "world": 2}})
    monkeypatch.setattr("prismdbg.cli.commands.memory.capsule_at", refused)
    assert main.run(["memory", str(traced_run.path), "--rank", "0"]) == ExitCode.OK
    assert main.run(["memory", str(traced_run.path), "--rank", "0", "--keep", "kept"]) == ExitCode.USAGE
    assert f"the capsule of rank 0 in {traced_run.path}" in capsys.readouterr().err


def test_a_curve_fits_where_it_is_printed(builder: TraceBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(500):
        builder.allocate(5 << 20, f"aten::op{number}")
    trace = open_trace(builder.write())
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        answer = answers.Memory(answer=curve(trace), by="op", moment=Moment(0))
        assert columns - 12 < max(map(len, answer_text(answer).splitlines())) <= columns


def test_what_is_older_than_the_trace_is_a_lower_bound(builder: TraceBuilder) -> None:
    text = answer_text(
        answers.Memory(answer=live_at(open_trace(training(builder)), Moment(1)), by="op", moment=Moment(1))
    )
    assert "at least 100 bytes of it is older than the trace" in text


def test_what_a_cap_refused_is_told_and_counts_nowhere(builder: TraceBuilder) -> None:
    builder.now = Moment(1, 2, 3)
    builder.allocate(100, "aten::empty")
    builder.refuse(1000, "aten::mm", frames=(OWN,))
    builder.allocate(10, "aten::empty")
    trace = open_trace(builder.write())
    (refused,) = refusals(trace)
    assert (refused.moment, refused.size_bytes, refused.held_bytes) == (Moment(1, 2, 3), 1000, 100)
    assert (refused.site.op, refused.site.own_frame) == ("aten::mm", OWN)
    found = peak(trace, with_backend=True)
    assert found is not None and found.size_bytes == 110
    assert int(trace.backend_bytes[-1]) == 0
    assert live_at(trace).program_bytes == 110
    assert "device_traces" in snapshot(trace)


def of_a_captured_rank(folder: Path, in_use_bytes: int | None = 1000) -> Path:
    """100 bytes are known from before, 30 more are held through all of step 4, and 50 that nobody knew are found."""
    builder = TraceBuilder(folder, now=Moment(4), from_start=False, in_use_bytes=in_use_bytes)
    old = builder.before(100)
    builder.now = Moment(4, 1)
    builder.allocate(30, "aten::mm")
    builder.allocate(7, backend=True)
    builder.before(50)
    builder.now = Moment(4, 2)
    builder.free(old)
    return builder.write()


def test_what_a_captured_rank_held_is_known_in_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What C++ alone held is in no sum: every sum is the least that there was, and that is said with a bound."""
    folder = of_a_captured_rank(tmp_path / "trace")
    trace = open_trace(folder)
    assert (trace.is_whole, trace.uncounted_bytes) == (False, 900)
    monkeypatch.setenv("COLUMNS", "120")

    def said(*options: str) -> str:
        assert main.run(["memory", str(folder), *options]) == ExitCode.OK
        return " ".join(capsys.readouterr().out.split())

    uncounted = "(DDP buckets, saved tensors): at most 900 bytes"
    shown = said()
    assert "peak at least 180 bytes at 4.1" in shown and uncounted in shown
    assert "lower bound" in shown
    assert "live at end of trace at least 80 bytes after 4.2, the last traced moment" in shown
    shown = said("--at", "4.1")
    assert (
        "live at least 150 bytes at 4.1" in shown
        and "at least 150 bytes of it is older" in shown
        and uncounted in shown
    )
    shown = said("--diff", "4.1", "5")
    assert "growth at most -70 bytes" in shown and "freed at least 100 bytes" in shown
    peak_json = json.loads(said("--json"))
    assert (peak_json["is_least"], peak_json["uncounted_bytes"]) == (True, 900)
    made_inside = json.loads(said("--json", "--made-inside"))
    assert (made_inside["peak_bytes"], made_inside["is_least"]) == (30, False), "nothing older counts there"
    shown = said("--made-inside")
    assert "30 B │" in shown and "150 B" not in shown and "lower bound" not in shown, "nor in the curve"


def test_the_debugger_says_it_too(tmp_path: Path) -> None:
    trace = open_trace(of_a_captured_rank(tmp_path / "trace", None))
    for shown in (live_at(trace, Moment(4, 2)), peak(trace)):
        text = answer_text(answers.Memory(answer=shown, by="op", moment=Moment(4, 2)))
        assert "at least 180 bytes" in text and "(DDP buckets, saved tensors): amount unknown" in text


@pytest.mark.parametrize(
    ("from_start", "begin", "older", "whole"),
    [
        (True, Moment(0), True, True),  # torch's own
        (True, Moment(7), True, True),  # of a rank that was traced before it was captured
        (False, Moment(0), False, False),  # a rank that was captured before its first collective
        (None, Moment(0), False, True),
        (None, Moment(0), True, False),
        (None, Moment(7), False, False),
    ],
)
def test_a_trace_is_whole_from_the_programs_start_on(
    tmp_path: Path, from_start: bool | None, begin: Moment, older: bool, whole: bool
) -> None:
    builder = TraceBuilder(tmp_path / "trace", now=begin, from_start=from_start)
    if older:
        builder.before(8)
    builder.allocate(8)
    assert open_trace(builder.write()).is_whole is whole


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"from_start": true, "in_use_bytes": "x"}', "[" * 100_000])
def test_a_damaged_begin_is_said(tmp_path: Path, text: str) -> None:
    folder = TraceBuilder(tmp_path / "trace").write()
    (folder / memory_format.BEGAN).write_text(text)
    with pytest.raises(CapsuleError, match="is damaged"):
        open_trace(folder)


def test_a_threads_late_record_is_not_the_end(builder: TraceBuilder) -> None:
    builder.now = Moment(3, 2, 5)
    builder.allocate(8)
    builder.now = Moment(3, 1)
    builder.allocate(8)
    trace = open_trace(builder.write())
    assert trace.end == Moment(3, 2, 5)
    assert curve(trace, points=1).end == Moment(3, 2, 5)


def test_the_backends_at_the_peak_is_the_same_with_it_and_without(builder: TraceBuilder) -> None:
    """Told apart, and counted where that is asked for."""
    builder.allocate(100, "aten::mm")
    builder.allocate(7, backend=True)
    builder.allocate(50, "aten::mm")
    trace = open_trace(builder.write())
    apart, together = peak(trace), peak(trace, with_backend=True)
    assert apart is not None and (apart.size_bytes, apart.backend_bytes, apart.live.backend_bytes) == (150, 7, 0)
    assert together is not None and (together.size_bytes, together.backend_bytes) == (157, 7)


def test_lines_that_are_only_the_last_known_ones_are_said_to_be(builder: TraceBuilder) -> None:
    builder.allocate(300, "aten::mm", frames=(OWN,), old_stack=True)
    builder.allocate(7000, "aten::mm", old_stack=True)  # of no line at all
    builder.allocate(40, "aten::mm", frames=(OWN,))
    shown = answers.Memory(answer=peak(open_trace(builder.write())), by="op", moment=Moment(0))
    assert "approximate lines" in answer_text(shown) and "300 bytes of it: the last line known" in answer_text(shown)


def test_exact_lines_need_no_word(builder: TraceBuilder) -> None:
    builder.allocate(40, "aten::mm", frames=(OWN,))
    shown = answers.Memory(answer=peak(open_trace(builder.write())), by="op", moment=Moment(0))
    assert "approximate" not in answer_text(shown)


@pytest.mark.parametrize(
    ("given", "ends"),
    [
        ([], "and 3 more groups, 6 B together; --top 15 shows all"),
        (["--at", "1"], "and 3 more groups, 6 B together; --top 15 shows all"),
        (["--diff", "0.0.2", "0.0.15"], "and 1 more group, 2 B; --top 13 shows all"),
        (["--top", "15"], " 1 B       1  aten::op0"),
        (["--top", "20"], " 1 B       1  aten::op0"),
    ],
)
def test_groups_that_are_not_shown_are_counted(
    builder: TraceBuilder, capsys: pytest.CaptureFixture[str], given: list[str], ends: str
) -> None:
    for number in range(15):
        builder.operator(f"aten::op{number}")
        builder.allocate(number + 1, f"aten::op{number}")
    assert main.run(["memory", str(builder.write()), *given]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines()[-1] == ends


def test_a_debugger_counts_the_groups_that_it_does_not_show(builder: TraceBuilder) -> None:
    for number in range(14):
        builder.allocate(number + 1, f"aten::op{number}")
    live = live_at(open_trace(builder.write()), None)
    shown = answer_text(answers.Memory(answer=live, by="op", moment=Moment(0)))
    assert shown.splitlines()[-1] == "and 2 more groups, 3 B together"


@pytest.mark.parametrize("points", [20, 30, 45, 50, 68, 90])
def test_a_curve_of_steps_that_are_alike_does_not_grow(builder: TraceBuilder, points: int) -> None:
    for step in range(20):
        builder.now = Moment(step)
        blocks = [builder.allocate(100) for _ in range(30)]
        for block in blocks:
            builder.free(block)
    high = curve(open_trace(builder.write()), points).high_bytes
    each = len(high) // 20
    assert len(high) == each * 20 and (high.reshape(20, each) == high[:each]).all()
