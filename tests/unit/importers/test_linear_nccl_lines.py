"""A line of NCCL's takes a time in proportion to its length, and gives what one expression for all of it gave.

The lines here are 1 MiB long, which no reader is given: with an expression that goes over a line again from each of its
places, each would take an hour.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prismdbg.importers import nccl_log

HERE = "n:1:2 [0] NCCL INFO "
INIT = f"{HERE}ncclCommInitRank comm 0x1 rank 0 nranks 2 "
BEGIN_AND_RUN = {
    "identities": (INIT, "commId 0x1 "),
    "identity": (f"{INIT}commId 0x", "1"),
    "no end": (INIT, "- Init "),
    "address": (f"{HERE}ncclCommInitRank comm 0x", "f"),
    "digits": (f"{HERE}ncclCommInitRank comm 0x1 rank ", "1"),
    "word": ("", "a"),
    "host": ("a:", "1"),
    "hosts": ("", "a:1:2 "),
    "sources": ("a:1:2 [0] ", "a.cc:1 "),
    "source": ("a:1:2 [0] ", "a/"),
    "counts": (f"{HERE}2 coll channels, ", "7"),
    "p2p": (f"{HERE}2 coll channels, ", "7 p2p "),
    "coll": (HERE, "2"),
    "ring": (f"{HERE}Channel 00/02 : ", "1 "),
    "ring of spaces": (f"{HERE}Channel 00/02 : 1", " "),
    "transport": (f"{HERE}Channel 00/0 : 1[", "1"),
    "transports": (f"{HERE}Channel 00/0 : 1[1] -> 2[", "] via "),
    "setting": (f"{HERE}NCCL_A set to ", "."),
    "setting of words": (f"{HERE}NCCL_", "A"),
    "levels": ("", "NCCL "),
    "versions": ("", "NCCL version "),
    "version": ("NCCL version ", "2."),
    "shape": (f"{HERE}comm 0x1 rank 0 nranks 2 nNodes ", "2"),
}
PROGRAM = """
import json, sys
from prismdbg.importers import nccl_log
for name, (begin, run) in json.loads(sys.argv[1]).items():
    print(name, flush=True)
    line = begin + run * ((1 << 20) // len(run))
    for each in (line, line + " NCCL INFO x", line + "x NCCL INFO x"):
        nccl_log._Reader().take(each)
"""


def test_a_line_takes_a_time_in_proportion_to_its_length() -> None:
    """In a process of its own, because nothing ends an expression that goes on for hours."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps(BEGIN_AND_RUN)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"reads on and on at {process.communicate()[0].splitlines()[-1]!r}")
    assert (process.returncode, said.splitlines()) == (0, list(BEGIN_AND_RUN))


ONE_FOR_ALL = re.compile(
    r"(?:(?P<host>[\w.-]+):(?P<pid>\d{1,9}):\d{1,9} (?:\[\d+\] )?(?:[\w./-]+:\d+ )?)?"
    r"NCCL (?P<level>INFO|WARN) (?P<text>.+)"
)
PIECES = ["node-1", "n.x", ":", "12", "[0]", "[", "]", " ", "NCCL INFO x", "NCCL ", "a/b.cc:12 ", "n:1:2 ", "[3] ", "-"]


@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join))
@example("[2026-01-01 00:00:00] node-1:71:91 [0] init.cc:12 ")
@example("[default0]:node-1:71:91 ")
@example("a:1:2:3 [0] ")
def test_who_printed_a_line(before: str) -> None:
    line = f"{before}NCCL WARN told"
    found, one = nccl_log._LINE.search(line), ONE_FOR_ALL.search(line)
    assert found is not None and one is not None
    assert (found["level"], found["text"]) == (one["level"], one["text"])
    assert nccl_log._process(line[: found.start()]) == (one["host"] or "", one["pid"] or "")


def test_numbers_that_are_none() -> None:
    """Python reads no text of more than 4300 digits as a number."""
    reader, long = nccl_log._Reader(), "1" * 5000
    for text in (
        f"comm 0x1 rank {long} nranks 2 nNodes 2 localRanks 1",
        f"ncclCommInitRank comm 0x1 rank 0 nranks {long} - Init START",
        "ncclCommInitRank comm 0x1 rank 0 nranks 2 - Init START", f"Channel {long}/2 : 0 1", f"Channel 0/2 : 0 {long}",
        f"{long} coll channels, 2 p2p channels", f"2 coll channels, {long} p2p channels",
    ):  # fmt: skip
        reader.take(HERE + text)
    (communicator,) = reader.log.communicators
    assert (communicator.begun, communicator.rings, communicator.coll_channels) == ({0}, {}, 0)
