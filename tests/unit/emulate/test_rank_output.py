"""What an emulated rank prints is kept in its file, bounded, and its end can be shown."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from prismdbg.emulate.rank_output import MOST_BYTES, NEWEST_BYTES, SHOWN_LINES, KeptOutput, ShownOutput


def printed(program: str, path: Path, say: Callable[[str], None] = lambda _: None) -> KeptOutput:
    """By a process that runs this program to its end."""
    output = KeptOutput(path, say)
    words = [sys.executable, "-S", "-c", program]
    with subprocess.Popen(words, stdout=output.stdout, stderr=output.stderr) as process:
        end_fd = os.pidfd_open(process.pid)
        output.follow(end_fd)
    output.finish()
    os.close(end_fd)
    return output


def test_both_streams_are_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "output" / "3.txt"
    output = printed("import os; os.write(1, b'step 1\\n'); os.write(2, b'a warning\\n')", path)
    assert path.read_text() == "step 1\na warning\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert output.last_lines() == "| step 1\n| a warning"
    assert output.advice(stays=True) == f"see its output in {path}"
    assert output.advice(stays=False) == "see the end of its output above"


def test_the_file_is_bounded_and_has_the_newest(tmp_path: Path) -> None:
    lines = 2 * MOST_BYTES // 8
    output = printed(f"print('\\n'.join(f'{{n:07}}' for n in range({lines})))", tmp_path / "0.txt")
    text = (tmp_path / "0.txt").read_text()
    begin, note, newest = text[:MOST_BYTES], text[MOST_BYTES:-NEWEST_BYTES], text[-NEWEST_BYTES:]
    assert begin.startswith("0000000\n0000001\n")
    assert note == f"\n... {lines * 8 - MOST_BYTES - NEWEST_BYTES} bytes left out\n"
    assert newest.endswith(f"{lines - 1:07}\n")
    assert output.last_lines().splitlines()[0] == f"| {lines - SHOWN_LINES:07}"


def test_a_process_that_was_left_behind_is_not_waited_for(tmp_path: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as gate:
        assert gate.stdin is not None
        left = f"open('/proc/{gate.pid}/fd/0').read()"  # until this test ends it
        output = printed(f"import os\nprint('before', flush=True)\nif not os.fork():\n    {left}", tmp_path / "0.txt")
        assert output.last_lines() == "| before"


def test_what_the_recorder_says_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    program = """
for part in ["step 1\\nprismdbg: 16 bytes ", "do not fit\\nno prismdbg: here\\n", "x" * 200000, "\\nprismdbg: more\\n"]:
    print(part, end="", flush=True)
"""
    printed(program, tmp_path / "0.txt", said.append)
    assert said == ["16 bytes do not fit", "more"]


def test_what_a_rank_prints_may_not_steer_the_terminal(tmp_path: Path) -> None:
    output = printed("print('\\x1b[31mred' + 'x' * 1000)", tmp_path / "0.txt")
    assert "\x1b" not in output.last_lines() and len(output.last_lines()) < 600


def test_who_prints_nothing_is_said_to(tmp_path: Path) -> None:
    output = printed("", tmp_path / "0.txt")
    assert output.last_lines() == ""
    assert output.advice(stays=True) == "run the program by itself: it printed nothing"


def test_a_rank_that_was_never_started_leaves_no_descriptor(tmp_path: Path) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    KeptOutput(tmp_path / "0.txt", lambda _: None).finish()
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_disk_that_takes_nothing_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "0.txt").symlink_to("/dev/full")
    output = printed("print('x' * 1000000); print('the end')", tmp_path / "0.txt")
    assert output.last_lines().endswith("| the end")


def test_shown_as_it_comes_it_is_above() -> None:
    shown = ShownOutput(2)
    shown.follow(-1)
    shown.finish()
    assert (shown.stdout, shown.stderr, shown.last_lines()) == (2, None, "")
    assert shown.advice(stays=True) == "see its output above"
