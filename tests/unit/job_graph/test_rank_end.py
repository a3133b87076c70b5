"""How a rank ended, of a log whose exit was noted without its code: by a rank that does not know it, or by damage."""

from __future__ import annotations

from typing import Any

import pytest

from prismdbg.capsule.log.notes import exit_codes
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.job_graph.rank_end import fault_of
from tests.unit.logs import Job


@pytest.mark.parametrize(
    ("exits", "codes", "fault"),
    [([{}], [0], ""), ([{"code": 3}], [3], "ended with code 3"), ([{"code": None}], [], ""),
     ([{"code": 3}, {"code": None}], [3], "ended with code 3")],
)  # fmt: skip
def test_an_exit_without_a_code(exits: list[dict[str, Any]], codes: list[int], fault: str) -> None:
    job = Job(1)
    for data in exits:
        job.note(0, "exit", **data)
    log = job.logs[0]
    assert (exit_codes(log.notes), fault_of(log)) == (codes, fault)
    assert Evidence(logs=job.logs).progress()[0].exit_code == (codes[-1] if codes else None)
