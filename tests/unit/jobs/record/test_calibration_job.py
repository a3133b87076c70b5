"""What is said of a calibration's job that failed."""

from __future__ import annotations

import pytest

from prismdbg.checkpoint.bounded import Finished
from prismdbg.jobs.record.calibrate import _failure

LAUNCHER = "W1123 09:50:05.757000 7120 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 7131"
CAUSE = "python: No module named prismdbg.no_such_program"


@pytest.mark.parametrize("lines", [(CAUSE, LAUNCHER), (LAUNCHER, CAUSE)])
def test_the_job_s_own_words_are_told_and_not_its_launcher_s(lines: tuple[str, str]) -> None:
    output = "\n".join((*lines, "E1123 09:50:05.9 7120 api.py:900] failed (exitcode: 1)"))
    assert str(_failure(None, Finished(returncode=1, output=output))).endswith(f"ended with code 1: {CAUSE}")
