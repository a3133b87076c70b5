"""Whatever standard input and output were at the dump, a restored rank writes into its session."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from counting import ask, capture, counting, image_spec, short_folder, with_saving
from waiting import wait_for

from prismdbg.checkpoint import bundle
from prismdbg.runtime.local_runtime import LocalRuntime
from prismdbg.runtime.starter_control import StarterControl

pytestmark = pytest.mark.criu


@contextmanager
def stream(kind: str) -> Iterator[dict[str, Any]]:
    """Options for a process whose output is of this kind; what it writes fits into the kernel's buffers."""
    if kind == "file":
        yield {}
    elif kind == "nothing":
        yield {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    elif kind == "pipe":
        reading, writing = os.pipe()
        yield {"stdout": writing, "stderr": writing}
        os.close(reading)
        os.close(writing)
    elif kind == "two pipes":
        yield {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    elif kind == "terminal":
        ours, theirs = os.openpty()
        yield {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        os.close(theirs)
        os.close(ours)


@pytest.mark.parametrize("kind", ["file", "nothing", "pipe", "two pipes", "terminal"])
def test_output_goes_to_the_session(kind: str) -> None:
    criu = bundle.find()
    with (
        short_folder() as home,
        short_folder() as capsule,
        short_folder() as session,
        stream(kind) as options,
        counting(home, **options) as one,
    ):
        taken = capture(criu, one, capsule)
        spec, socket = image_spec(taken, session)
        rank = LocalRuntime().start(spec)
        try:
            count = ask(socket, "status")["count"]
            wait_for(lambda: ask(socket, "status")["count"] > count + 20, 30, "the rank to go on")
            printed = spec.output.read_text()
        finally:
            rank.kill()
        assert one.process.poll() is None
    if kind != "nothing":
        assert "counted to" in printed


@pytest.mark.parametrize("kind", ["file", "pipe", "terminal"])
def test_output_goes_on_where_an_image_of_the_restored_rank_was_taken(kind: str) -> None:
    criu = bundle.find()
    with (
        short_folder() as home,
        short_folder() as capsule,
        short_folder() as session,
        short_folder() as images,
        stream(kind) as options,
        counting(home, **options) as one,
    ):
        taken = capture(criu, one, capsule)
        planned, socket = image_spec(taken, session)
        spec = with_saving(planned, criu, images)
        rank, control = LocalRuntime().start(spec), StarterControl(session, 60)
        try:
            wait_for(lambda: "counted to" in spec.output.read_text(), 30, "output")
            saved = control.save("1")
            assert saved.refusal == ""
            length = len(spec.output.read_text())
            wait_for(lambda: len(spec.output.read_text()) > length + 20, 30, "more output")
            assert control.return_to("1", saved.seal).refusal == ""
            count = ask(socket, "status")["count"]
            wait_for(lambda: ask(socket, "status")["count"] > count + 20, 30, "the rank to go on")
            printed = [int(line.split()[-1]) for line in spec.output.read_text().splitlines() if "counted to" in line]
        finally:
            rank.kill()
    assert printed == list(range(printed[0], printed[0] + 10 * len(printed), 10)), "cut back, and nothing twice"
