"""A collective of the backward pass that a thread of torch's issues is named by the line that began the pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import recording
from jobs import forked

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "backward_elsewhere.py"


@pytest.mark.parametrize("kernels", [(), ("--python-kernels",)], ids=["native", "python"])
def test_the_line_that_began_the_pass(kernels: tuple[str, ...], tmp_path: Path) -> None:
    with recording(forked(PROGRAM, ranks=2), tmp_path, *kernels) as job:
        ended = job.end()
    assert ended.output.count("gradient [4.0, 4.0, 4.0]") == 2, ended.output[-3000:]
    forward, backward = job.log(0).collectives
    assert forward.frames == ()
    own = next(frame for frame in backward.frames if frame.filename == str(PROGRAM))
    assert PROGRAM.read_text().splitlines()[own.line - 1] == "loss.backward()"
