"""The payload window of the native recorder: switched at once, bounded in steps and in bytes, closed and reopened."""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from native_ranks import JOBS, Ran, run_job

from prismdbg.capsule.log.reader import read_payload
from prismdbg.errors import CapsuleError
from prismdbg.model.collective import PayloadRef, State
from prismdbg.rank.native import build as native_build

NATIVE = native_build.SOURCES
STORE = (
    *("recorder/payload_store", "recorder/payload_slot", "recorder/spare_segments"),
    *("log/segment_supply", "log/segment", "log/write_queue", "process/background_thread", "process/descriptor"),
)
MIB = 1 << 20


def readable(one: Ran) -> dict[int, int]:
    """step -> bytes, of the payloads that are still on disk."""
    found: dict[int, int] = {}
    for collective in one.log().collectives:
        if collective.payload is None:
            continue
        try:
            data = read_payload(one.folder, collective.payload)
        except CapsuleError:
            continue
        assert data == bytes([collective.moment.step]) * len(data)
        found[collective.moment.step] = found.get(collective.moment.step, 0) + len(data)
    return found


def _is_readable(folder: Path, payload: PayloadRef) -> bool:
    with contextlib.suppress(CapsuleError):
        return len(read_payload(folder, payload)) == payload.size_bytes
    return False


def test_the_window_is_switched_at_once(tmp_path: Path) -> None:
    (one,) = run_job(tmp_path, "window", 1, "switched")
    sizes = [c.payload.size_bytes if c.payload else None for c in one.log().collectives]
    assert sizes == [None, 20, None]


def test_steps_older_than_the_window_are_removed(tmp_path: Path) -> None:
    (one,) = run_job(tmp_path, "window", 1, "steps")
    assert sorted(readable(one)) == [5, 6, 7, 8, 9], "step 12 keeps 9, and keep_from(5) holds 5 to 8"
    assert one.report()["stats"]["payload_oldest_step"] == 5


def test_what_a_snapshot_no_longer_needs_is_written_over(tmp_path: Path) -> None:
    """New memory is dear."""
    (one,) = run_job(tmp_path, "window", 1, "rounds")
    assert sorted(readable(one)) == [*range(36, 42)], "at the end, what is not needed is given back"


def test_a_window_that_was_long_gets_shorter_again(tmp_path: Path) -> None:
    run_job(tmp_path, "window", 1, "round_that_was_long")


def test_the_window_keeps_within_its_bytes(tmp_path: Path) -> None:
    (one,) = run_job(tmp_path, "window", 1, "size")
    kept = sorted(readable(one))
    assert kept == list(range(kept[0], 20)) and len(kept) >= 5
    assert one.report()["stats"]["payload_oldest_step"] == kept[0]


def test_a_large_payload_has_a_segment_of_its_own(tmp_path: Path) -> None:
    (one,) = run_job(tmp_path, "window", 1, "large")
    places = [c.payload for c in one.log().collectives]
    assert [place and place.segment for place in places] == [0, 1, 2, 3]
    assert readable(one) == {0: 200 + 3 * MIB + 5 + 5 * MIB}


def test_a_segment_that_somebody_can_still_read_is_never_written_over(tmp_path: Path) -> None:
    (one,) = run_job(tmp_path, "window", 1, "watched")
    assert sorted(readable(one)) == [16, 17, 18, 19]
    assert not [*one.folder.glob("*.spare")], "the spare is given back at the end"


def test_a_payload_larger_than_the_window_ends_only_the_window(tmp_path: Path) -> None:
    (one,) = run_job(tmp_path, "window", 1, "too_large")
    log = one.log()
    assert [c.payload is not None for c in log.collectives] == [True, False, False]
    assert all(c.state is State.COMPLETED for c in log.collectives)
    assert [note.kind for note in log.notes] == ["lost"]


def test_a_payload_larger_than_all_that_may_wait_for_a_file_server_is_kept(tmp_path: Path) -> None:
    (one,) = run_job(tmp_path, "window", 1, "distant")
    log = one.log()
    sizes = [c.payload.size_bytes if c.payload else None for c in log.collectives]
    assert sizes == [65 * MIB, 100, 65 * MIB, 100]
    assert readable(one) == {0: 2 * 65 * MIB + 200} and not log.notes


def test_small_payloads_of_the_beginning_outlive_what_is_larger(tmp_path: Path) -> None:
    """One that is larger than the window is left out alone. They are in the prologue,
    and later go first as any others."""
    (one,) = run_job(tmp_path, "window", 1, "beginning")
    log = one.log()
    assert not log.notes and one.report()["stats"]["lost"] == ""
    first = [c for c in log.collectives if c.moment.step == 0]
    sizes = [c.payload.size_bytes if c.payload else None for c in first]
    assert sizes == [100, None, 64 << 10, *[MIB] * 8, 200, 300]
    kept = [c.payload.size_bytes for c in first if c.payload and _is_readable(one.folder / "prologue", c.payload)]
    assert kept == [100, 64 << 10, *[MIB] * 4, 200, 300]
    assert sorted(readable(one)) == [5, 6, 7, 8], "the window is as large as it was"


def test_small_payloads_of_the_beginning_are_bounded_too(tmp_path: Path) -> None:
    (one,) = run_job(tmp_path, "window", 1, "many_small")
    places = [c.payload.segment for c in one.log().collectives if c.payload]
    assert places == [0, 0, 1, 1, 1, 0, 0]


def test_a_receive_in_flight_when_the_window_is_switched_on_is_kept(tmp_path: Path) -> None:
    ran = run_job(tmp_path, "in_flight", 2, "switched")
    received = ran[0].log().collectives[0]
    assert received.payload is not None
    assert read_payload(ran[0].folder, received.payload) == struct.pack("<1000f", *range(1000))


def test_what_completes_while_the_log_is_closed_is_written_when_it_is_reopened(tmp_path: Path) -> None:
    ran = run_job(tmp_path, "in_flight", 2, "closed")
    log = ran[0].log()
    assert [c.name for c in log.collectives] == ["recv", "send", "all_reduce"]
    assert all(c.state is State.COMPLETED for c in log.collectives)
    assert [note.kind for note in log.notes] == ["held"]
    received = log.collectives[0]
    assert received.payload is not None
    assert read_payload(ran[0].folder, received.payload) == struct.pack("<1000f", *range(1000))


def test_payloads_after_a_park_that_failed_stand_in_no_others_place(tmp_path: Path) -> None:
    """One was written for so long that the log could not be closed."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    program = tmp_path / "program"
    sources = [JOBS / "failed_close.cpp", *(NATIVE / f"{name}.cpp" for name in STORE)]
    command = [compiler, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", "-rdynamic"]
    subprocess.run([*command, *map(str, sources), "-o", str(program)], check=True, timeout=120)
    folder = tmp_path / "log"
    folder.mkdir()
    ended = subprocess.run([program, folder], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    places = [tuple(map(int, line.split())) for line in ended.stdout.splitlines()]
    payloads = [b"b" * 50, b"a" * 100, b"c" * 60]
    for (segment, offset), expected in zip(places, payloads, strict=True):
        assert read_payload(folder, PayloadRef(segment, offset, len(expected))) == expected


def test_a_payload_that_finds_no_file_after_a_park_ends_the_window_alone(tmp_path: Path) -> None:
    ran = run_job(tmp_path, "in_flight", 2, "refused")
    log = ran[0].log()
    assert [(c.name, c.state) for c in log.collectives] == [
        (name, State.COMPLETED) for name in ("recv", "send", "all_reduce")
    ]
    assert [note.kind for note in log.notes] == ["held", "lost"]
    assert log.notes[1].data["text"].startswith("payloads are no longer recorded: ")
