"""Texts of files from elsewhere take a time in proportion to their length, also where they are made against it.

They are 1 MiB long: an expression that goes over the rest of a text from each of its places would take hours.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prismdbg.checkpoint import criu_log
from prismdbg.diagnosis.folded_traceback import folded
from prismdbg.diagnosis.verdict import without_folders
from prismdbg.jobs.replay.exceptions import raised_at

PROGRAM = """
from prismdbg.checkpoint.criu_log import decisive_line
from prismdbg.debugger.known_names import _EVERYTHING
from prismdbg.diagnosis.verdict import without_folders
from prismdbg.render.fitting import cut_words
from prismdbg_tui.drawing.wrapping import wrapped

def try_all(tried, texts):
    for text in texts:
        print(tried.__name__, repr(text), flush=True)
        tried(text * ((1 << 20) // len(text)) + "x")
        tried("x" + text * ((1 << 20) // len(text)))

try_all(without_folders, ["(/", "/a", "/", "//", "(", "a", "/a:", "(/a/:", " /"])
try_all(decisive_line, ["\\n", " ", "(1)", "(1) ", "1: ", "Error (", "Error (\\n", "(1) pie: 1:\\n"])
try_all(_EVERYTHING.search, ["\\n", " ", "from ", "from a ", "from a\\n", " \\n"])
try_all(lambda text: cut_words(text, 40), [" ", "\\n"])
try_all(lambda text: wrapped(text, 40), [" "])
print("all")
"""


def test_texts_take_a_time_in_proportion_to_their_length() -> None:
    """In a process of its own, because nothing ends an expression that goes on for hours."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"goes on and on at {process.communicate()[0].splitlines()[-1]!r}")
    assert (process.returncode, said.splitlines()[-1]) == (0, "all")


ONE_FOR_ALL = re.compile(r"(?<![^\s(])/(?:[^\s:/]+/)+(?=[^\s:/]+:\d)")
PIECES = ["/", "a", "(", "b.py", ":", "1", " ", "//", ")", "\n", ":1", "/v/lib/"]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("step (/opt/train/train.py:61 in main), then /opt/b.py:7")
@example("s3://bucket/run/train.py:61")
def test_names_of_files_without_their_folders(text: str) -> None:
    assert without_folders(text) == ONE_FOR_ALL.sub("", text)


def test_numbers_that_python_does_not_read() -> None:
    """Of more than 4300 digits."""
    long = "1" * 5000
    frame = '  File "/work/train.py", line 12, in main'
    lines = ["Traceback (most recent call last):", frame, "    step()", f"  [Previous line repeated {long} more times]"]
    assert folded([*lines, *[frame, "    step()"] * 3, "ValueError: no"])[-1] == "ValueError: no"
    assert folded([lines[0], f'  File "/work/train.py", line {long}, in main', *["    a"] * 9, "ValueError: no"])
    assert raised_at({"traceback": [f'  File "/work/train.py", line {long}, in main']}) == ""


def test_the_lines_of_criu_are_those_of_its_errors() -> None:
    log = "(00.1)      1: some\n\n(00.2)     12: Error (criu/files.c:12): File x has bad size\n"
    log += "\nError (a): Dumping FAILED\n"
    assert criu_log.decisive_line(log) == "File x has bad size"
    assert criu_log.decisive_line("(00.2) pie: 12: Error (pie.c:1): no room\n") == "no room"
