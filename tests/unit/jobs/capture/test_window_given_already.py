"""Advice names `--window all` only where the run was recorded without it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import pytest
from tiny_log import TinyLog

from prismdbg.capsule.log.coverage import NO_STEP_BEFORE
from prismdbg.capsule.manifest import Incident, IncidentKind, Origin
from prismdbg.emulate.external_donors import write_external
from prismdbg.errors import CapsuleError, FacilityError, PrismError, RankLost, UsageError
from prismdbg.jobs.capture.capture import CaptureRequest, capture, socket_of
from prismdbg.jobs.capture.reach import reach_of_ranks
from prismdbg.jobs.rank_capsule import capsule_of
from prismdbg.jobs.record.freeze import freeze, wanted_now
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.settings.process_stat import start_ticks
from prismdbg.simulate.graph.mesh import Mesh

REQUEST = Incident(kind=IncidentKind.REQUEST, text="by hand")
NO_SUCH_PID = 1 << 22


@pytest.fixture(params=[0, -1], ids=["without", "given"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    """One collective, whose payload was lost."""
    run = RunFolder(tmp_path / "run")
    log = TinyLog(run.ranks / "0")
    log.group("0", (0, 1), "default_pg")
    log.complete(log.issue(0, 1))
    write_json(run.run_json, {})
    write_json(run.config, {"window_steps": request.param})
    describe(run)
    return run


def describe(run: RunFolder, **facts: Any) -> None:
    described = {
        "pid": NO_SUCH_PID,
        "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
        "hardware": {"node": platform.node()},
        "uid": os.getuid(),
        "socket": "/nowhere",
    }
    write_json(run.ranks / "0" / "rank.json", described | facts)


def advice(caught: pytest.ExceptionInfo[PrismError]) -> str:
    return f"{caught.value}\n{caught.value.hint}"


def assert_fits(run: RunFolder, said: str) -> None:
    assert ("--window all" in said) is not run.keeps_all, said


def test_of_a_capture_from_the_start(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(CapsuleError, match="not all of the received data") as caught:
        capture(CaptureRequest(run=run, rank=0, output=tmp_path / "c", origin=Origin.START), print)
    assert_fits(run, advice(caught))


def test_of_a_rank_out_of_reach(run: RunFolder) -> None:
    describe(run, hardware={"node": "another"})
    with pytest.raises(FacilityError, match="another") as caught:
        socket_of(run.ranks / "0")
    assert_fits(run, advice(caught))
    assert "capture with --origin start" in advice(caught)


def test_of_an_incident_without_a_past(run: RunFolder) -> None:
    with pytest.raises(CapsuleError, match="no data from before") as caught:
        freeze(run, wanted_now(run.ranks / "0", REQUEST))
    assert_fits(run, advice(caught))


def test_of_a_rank_that_has_ended(run: RunFolder) -> None:
    with pytest.raises(RankLost, match="too little data") as caught:
        capsule_of(run.path, 0, print)
    assert_fits(run, advice(caught))


def test_of_what_can_be_captured(run: RunFolder) -> None:
    describe(run, pid=os.getpid(), started_ticks=start_ticks(os.getpid()))
    (found,) = reach_of_ranks(run)
    assert "not all payloads" in found.start
    assert_fits(run, found.start)


def test_of_a_donor(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no received values") as caught:
        write_external(run, Mesh.parse("dp=2"), tmp_path / "donors")
    assert_fits(run, advice(caught))


def test_of_a_capsule_that_starts_late() -> None:
    """A capsule does not say how its run was recorded, so its note says what to do in both cases."""
    assert "--window all and capture with --origin start" in NO_STEP_BEFORE
