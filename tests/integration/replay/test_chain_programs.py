"""Ranks of other kinds of programs, captured on their way and run again alone."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from chain import PARTS, Taken, assert_identical, prismdbg, recording, replay, span
from jobs import EXAMPLES, forked

pytestmark = [pytest.mark.job, pytest.mark.criu]

Start = Callable[[], list[str]]

STARTS: dict[str, tuple[int, Start]] = {
    "sharded and tensor parallel in bfloat16": (
        2,
        lambda: forked(EXAMPLES / "train_fsdp_tp.py", "--size", "tiny", "--steps", "40", ranks=4),
    ),
    "with processes that load its data": (
        1,
        lambda: forked(EXAMPLES / "train_ddp.py", "--size", "1m", "--steps", "60", "--workers", "2", ranks=2),
    ),
    "one process without a launcher": (0, lambda: [sys.executable, str(PARTS / "works_in_flight.py"), "6000"]),
    "works in flight and several threads": (
        1,
        lambda: forked(PARTS / "works_in_flight.py", "1500", ranks=2),
    ),
}


@pytest.fixture(scope="module", params=STARTS)
def taken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Taken:
    rank, start = STARTS[request.param]
    home = tmp_path_factory.mktemp("program")
    with recording(start(), home) as job:
        job.wait_for_step(rank, 3)
        said = prismdbg("capture", job.run.path, "--rank", rank, "--window", 3, "-o", home / "capsule")
        assert said.code == 0, f"{said.err}\n{job.job.output[-3000:]}"
        ended = job.end()
    assert ended.code == 0, ended.output[-3000:]
    return Taken(recording=job, ended=ended, said=(said,), capsule=home / "capsule").went_on()


@pytest.mark.parametrize("runtime", ["local", pytest.param("docker", marks=pytest.mark.docker)])
def test_it_runs_again_alone(taken: Taken, runtime: str) -> None:
    assert len(span(taken.capsule)) >= 3
    verdict = replay(taken.capsule, runtime=runtime)
    assert_identical(verdict, taken.capsule)
    assert [state["equal"] for state in verdict["states"]] == [True]
