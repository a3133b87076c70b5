"""What is said of a calibration's job that failed, and of what it cannot measure."""

from __future__ import annotations

import pytest

from prismdbg.checkpoint.bounded import Finished
from prismdbg.jobs.record.calibrate import MEASURES, CalibrateRequest, _failure

LAUNCHER = "W1123 09:50:05.757000 7120 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 7131"
CAUSE = "python: No module named prismdbg.no_such_program"


@pytest.mark.parametrize("lines", [(CAUSE, LAUNCHER), (LAUNCHER, CAUSE)])
def test_the_job_s_own_words_are_told_and_not_its_launcher_s(lines: tuple[str, str]) -> None:
    output = "\n".join((*lines, "E1123 09:50:05.9 7120 api.py:900] failed (exitcode: 1)"))
    assert str(_failure(None, Finished(returncode=1, output=output))).endswith(f"ended with code 1: {CAUSE}")


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (CalibrateRequest(groups=(2, 4)), {}),
        (CalibrateRequest(groups=(2,)), {"links": "2 ranks make one group of 2; give --ranks 2,4"}),
        (CalibrateRequest(groups=(3, 4)), {"links": "4 ranks make one group of 3; give --ranks 3,6"}),
        (CalibrateRequest(groups=(2,), without=("links",)), {"links": "left out as requested"}),
        (
            CalibrateRequest(groups=(2, 4), without=("overlap", "processors")),
            {"overlap": "left out as requested", "processors": "left out as requested"},
        ),
        (
            CalibrateRequest(groups=(2, 4), backend="nccl"),
            dict.fromkeys(MEASURES, "it is measured over gloo only, not over nccl"),
        ),
    ],
)
def test_what_makes_no_sense_is_named(request_: CalibrateRequest, why: dict[str, str]) -> None:
    assert request_.not_measured == why
    assert request_.at_once == tuple(name for name in MEASURES if name not in why)
