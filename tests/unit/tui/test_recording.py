"""A log as columns says the same as a log as values; patterns and what stands without colours."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from capsules import MANIFEST, make_capsule
from prismdbg_tui.session.pattern import rows_of
from prismdbg_tui.session.recorded_call import Sources
from prismdbg_tui.session.verdicts import Verdicts
from prismdbg_tui.timeline.recording import Recording, read_recording
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.reader import read_log
from prismdbg.capsule.stacks import HangPlace, JobStacks
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.log.columns import read_columns
from prismdbg.model.collective import Frame, TensorMeta
from tests.bench.large_capsule import make_large_capsule


def varied(folder: Path) -> Path:
    """Several segments, groups, kinds, shapes; one never ends, one fails."""
    log = TinyLog(folder)
    log.group("0", (0, 1), "default_pg")
    log.group("7", (0, 2), "mesh_tp")
    stack = log.stack(("/x/site-packages/torch/a.py", 3, "f"), ("/job/train.py", 61, "main"))
    many = (TensorMeta((3, 5), "bfloat16"), TensorMeta((), "int64"), TensorMeta((2,), "bool"))
    log.complete(log.issue(0, 1, stack=stack), b"\1" * 16)
    log.complete(log.issue(0, 2, op="_allgather_base_", group="7", inputs=many, outputs=many))
    log.step(1)
    log.next_segment()
    log.complete(log.issue(1, 1, op="barrier", inputs=(), outputs=()), status=fmt.Status.FAILED)
    log.issue(1, 2, op="send", group="7", root=1, flags=fmt.IssueFlag.P2P | fmt.IssueFlag.SENT_NONFINITE)
    return folder


def test_columns_say_what_the_reader_says(tmp_path: Path) -> None:
    folder = varied(tmp_path / "log")
    columns, log = read_columns(folder), read_log(folder)
    assert len(columns) == len(log.collectives) == 4
    assert columns.groups == log.groups
    for row, record in enumerate(log.collectives):
        assert columns.collective(row) == record
        assert columns.moment(row) == record.moment and columns.row_at(record.moment) == row
        assert columns.texts[int(columns.op[row])] == record.op
        assert int(columns.ended_ns[row]) == (record.time_completed_ns or -1)
        assert bool(columns.sent_nonfinite[row]) is record.sent_nonfinite
    assert columns.size_bytes.tolist() == [16, 30 + 8 + 2, 0, 16]


def test_a_damaged_log_shows_what_is_before(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = TinyLog(folder)
    log.complete(log.issue(0, 1))
    log.write(log.offset, fmt.RECORD.pack(12, fmt.Kind.ISSUE, 0))
    columns = read_columns(folder)
    assert len(columns) == 1 and isinstance(columns.damage, CapsuleError)
    with pytest.raises(CapsuleError, match="no log"):
        read_columns(tmp_path)


def test_a_large_capsule_is_read_whole(tmp_path: Path) -> None:
    recording = read_recording(make_large_capsule(tmp_path / "large", 5_000))
    assert len(recording) == 5_000 and len(recording.by_group) == 4
    assert len(read_log(recording.capsule.log).collectives) == 5_000


@pytest.mark.parametrize(
    ("pattern", "rows"),
    [
        ("", [0, 1, 2, 3]),
        ("all_", [0, 1]),
        ("-all_", [2, 3]),
        ("tp", [1, 3]),
        ("tp >20b", [1]),
        ("1.", [2, 3]),
        ("1.2", [3]),
        ("failed", [2]),
        ("open", [3]),
        ("nan p2p", [3]),
        ("train.py:61", [0]),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, rows: list[int]) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    recording = Recording(capsule, read_columns(varied(tmp_path / "log")))
    assert rows_of(recording, pattern).tolist() == rows


def test_what_was_made_up_is_marked_and_no_value_after_it_is_believed(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "log")
    nan, made_up = fmt.CompleteFlag.RECEIVED_NONFINITE, fmt.CompleteFlag.SYNTHESIZED
    log.complete(log.issue(0, 1), flags=nan)
    log.complete(log.issue(0, 2), flags=nan | made_up)
    log.complete(log.issue(0, 3, flags=fmt.IssueFlag.SENT_NONFINITE), flags=nan)
    recording = Recording(make_capsule(tmp_path / "capsule"), read_columns(tmp_path / "log"))

    assert recording.columns.synthesized.tolist() == [False, True, False]
    assert (recording.nonfinite.tolist(), recording.first_sent_nonfinite) == ([0], -1)
    assert [Verdicts().of(recording, row).text for row in range(3)] == ["✕ gets NaN", "synthesized", ""]
    assert rows_of(recording, "nan").tolist() == [0] and rows_of(recording, "synthesized").tolist() == [1]
    replayed = Verdicts(here=2, reached=2)
    assert replayed.of(recording, 1).text == "= synthesized" and len("= synthesized") <= 13, "fits its column"


def test_a_wrong_limit_is_named(tmp_path: Path) -> None:
    recording = read_recording(make_capsule(tmp_path / "capsule"))
    with pytest.raises(UsageError, match="not a limit"):
        rows_of(recording, ">much")


def test_the_screen_imports_neither_torch_nor_the_rank_side_nor_docker(child_environment: dict[str, str]) -> None:
    code = "import prismdbg_tui.session.app, sys; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], env=child_environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert not [name for name in ("'torch'", "'docker'", "'yaml'", "'prismdbg.rank.agent'") if name in loaded]


@pytest.mark.parametrize("kind", ["fifo", "device", "kernel", "folder", "gone", "zero byte", "endless"])
def test_no_source_is_read_where_a_capsule_names_what_is_no_file(tmp_path: Path, kind: str) -> None:
    """The name is the log's: reading a pipe would wait for ever, a device has no end."""
    capsule = make_capsule(tmp_path / "capsule")
    path = tmp_path / "train.py"
    if kind == "fifo":
        os.mkfifo(path)
    names = {"device": "/dev/zero", "kernel": "/proc/kmsg", "folder": "/etc", "zero byte": "/a\0b", "endless": "/"}
    seen = Sources(capsule).around(Frame(names.get(kind, str(path)), 3, "main"))
    assert (seen.lines, seen.note) == ((), "no source available")


def test_source_of_this_machine_is_read_through_links(tmp_path: Path) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    (tmp_path / "train.py").write_text("first\nsecond\n")
    (tmp_path / "link.py").symlink_to("train.py")
    seen = Sources(capsule).around(Frame(str(tmp_path / "link.py"), 2, "main"))
    assert (seen.lines, seen.note) == (("first", "second"), "from this machine, may have changed")


def test_lines_are_counted_as_python_counts_them(tmp_path: Path) -> None:
    """A form feed, which divides a file into pages, ends no line; each one moved the mark a line up."""
    (tmp_path / "train.py").write_text("first\n\f\nthird\x1c\u2028\x85 é\r\nfourth\n")
    seen = Sources(make_capsule(tmp_path / "capsule")).around(Frame(str(tmp_path / "train.py"), 4, "main"))
    assert seen.lines[0] == "first" and seen.lines[seen.line - seen.first] == "fourth"
    assert seen.lines[2] == "third\x1c\u2028\x85 é"


def test_what_hung_is_drawn_until_that_was_found(tmp_path: Path) -> None:
    """Not until the capsule was made by the clock of a machine that was suspended meanwhile."""
    log = read_columns(varied(tmp_path / "log"))
    hang = HangPlace(identity="group 0 #3", waiting=(0,), never_came={1: ""})
    taken = JobStacks(taken_wall_ns=log.wall_offset_ns + 10**9, attempt=0, ranks={}, hang=hang)
    made = replace(MANIFEST, created_ns=log.wall_offset_ns + 8 * 3600 * 10**9)
    capsules = [make_capsule(tmp_path / "asked", made), make_capsule(tmp_path / "hung", made, stacks=taken.to_json())]
    assert [Recording(capsule, log).seen_until_ns for capsule in capsules] == [8 * 3600 * 10**9, 10**9]
