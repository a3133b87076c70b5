"""A rank with a second thread that sends large tensors is captured; what holds a descriptor that no
replay could open is refused, and is captured once it is closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chain import PARTS, Recording, assert_identical, prismdbg, recording, replay, span
from jobs import forked
from waiting import wait_for

from prismdbg.jobs.capture.capture import LEFTOVER
from prismdbg.model.collective import State

pytestmark = [pytest.mark.job, pytest.mark.criu]

RANK = 1


@pytest.mark.parametrize("options", [(), ("--python-kernels",)], ids=["native", "python"])
def test_a_thread_on_its_way_into_a_collective(options: tuple[str, ...], tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.mkdir()
    capsules = [tmp_path / "first", tmp_path / "closed"]
    with recording(forked(PARTS / "two_threads.py", told, ranks=2), tmp_path, *options) as job:
        job.wait_for_step(RANK, 2)
        capture(job, capsules[0])
        refused(job, told, tmp_path / "refused")
        capture(job, capsules[1])
        (told / "last").touch()
        assert job.end().code == 0
    assert any(record.op == "send" for capsule in capsules for record in span(capsule))
    for capsule in capsules:
        assert_same(replay(capsule), capsule)


def assert_same(verdict: dict[str, Any], capsule: Path) -> None:
    """As `assert_identical`; a send that was on its way when the capsule was taken has an answer that nobody recorded,
    and that is said."""
    on_its_way = [record for record in span(capsule) if record.state is State.SCHEDULED]
    assert {record.op for record in on_its_way} <= {"send"}
    made_up = [told["collective"]["identity"] for told in verdict["synthesized"]]
    assert len(made_up) == verdict["tally"]["synthesized"]
    assert set(made_up) <= {str(record.identity) for record in on_its_way}, verdict
    assert_identical({**verdict, "tally": {**verdict["tally"], "synthesized": 0}}, capsule)


def capture(job: Recording, output: Path) -> None:
    said = prismdbg("capture", job.run.path, "--rank", RANK, "--window", 2, "-o", output)
    assert said.code == 0, f"{said.err}\n{job.job.output[-3000:]}"


def refused(job: Recording, told: Path, output: Path) -> None:
    """While the program itself holds a descriptor of another process."""
    (told / "hold").touch()
    wait_for(lambda: not (told / "hold").exists(), 60, "the program to open it")
    said = prismdbg("capture", job.run.path, "--rank", RANK, "--window", 2, "-o", output)
    assert said.code == 4, said.err
    assert "cannot be checkpointed" in said.err and "/stat" in said.err and "/proc/" in said.err
    assert "taking another one" in said.err and "close them in the program" in said.err
    assert not output.exists() and not list(job.run.path.glob(f"{LEFTOVER}*"))
    (told / "close").touch()
    wait_for(lambda: not (told / "close").exists(), 60, "the program to close it")
