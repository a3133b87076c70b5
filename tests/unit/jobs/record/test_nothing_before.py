"""Incidents before which nothing was kept: the log is evidence, and it is said why and what would have helped."""

from __future__ import annotations

from pathlib import Path

import pytest
from capsules import RANK
from kept_origins import add_checkpoints, add_states
from tiny_log import TinyLog

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.errors import CapsuleError, NotReplayable
from prismdbg.jobs.record import nothing_before
from prismdbg.jobs.record.freeze import freeze
from prismdbg.jobs.record.incidents import Wanted
from prismdbg.jobs.record.nothing_before import less_often
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.log.folding import fold
from prismdbg.model.moment import Moment
from prismdbg.runtime.environment import Environment

INCIDENT = Moment(5, 1)


def run_of(path: Path, **config: int) -> RunFolder:
    """One rank, 12 steps of two collectives whose payloads are gone."""
    run = RunFolder(path / "run")
    log = TinyLog(run.ranks / "0")
    log.group("0", (0, 1), "default_pg")
    for step in range(12):
        for number in (1, 2):
            log.complete(log.issue(step, number))
        log.step(step + 1)
    write_json(log.folder / "rank.json", {**RANK, "versions": {}, "hardware": {}})
    write_json(run.environment, Environment(()).to_json())
    write_json(run.config, config)
    return run


def frozen(run: RunFolder) -> CapsuleError:
    incident = Incident(kind=IncidentKind.NAN, text="a NaN", moment=INCIDENT)
    with pytest.raises(CapsuleError) as caught:
        freeze(run, Wanted(folder="0", incident=incident, last=INCIDENT))
    return caught.value


def test_snapshots_after_the_incident_are_named_and_the_log_is_evidence(tmp_path: Path) -> None:
    run = run_of(tmp_path, state_every=2)
    add_states(run, tmp_path / "capsule", 8, 10)
    error = frozen(run)
    assert isinstance(error, NotReplayable)
    evidence = run.capsules / "nan-rank0-5.1.evidence"
    assert str(error) == (
        "no capsule of rank 0: the snapshots of steps 8 and 10 are after the incident; "
        f"its log is kept as evidence in {evidence}"
    )
    assert error.hint == "record with --window all, too, to replay from the program's start", "10 is after step 5"
    manifest = Capsule.open(error.evidence).manifest
    assert (manifest.incident.kind, manifest.moment_b) == (IncidentKind.NAN, INCIDENT) and manifest.not_replayable


def test_a_single_one(tmp_path: Path) -> None:
    run = run_of(tmp_path, state_every=8)
    add_states(run, tmp_path / "capsule", 8)
    assert "rank 0: the snapshot of step 8 is after the incident; " in str(frozen(run))


def test_checkpoints_after_the_incident(tmp_path: Path) -> None:
    run = run_of(tmp_path, checkpoint_every=2)
    add_checkpoints(run, Moment(8), Moment(10))
    error = frozen(run)
    assert isinstance(error, NotReplayable)
    assert "rank 0: the checkpoints at 8.0 and 10.0 are after the incident; " in str(error)
    assert error.hint == "record with --window all, too, to replay from the program's start"


@pytest.mark.parametrize(
    ("config", "why", "hint"),
    [
        ({"state_every": 2}, "it took no state snapshot before the incident", "call prismdbg.restore_point"),
        ({"checkpoint_every": 2}, "no checkpoint was taken before the incident", "prismdbg status RUN"),
        ({"window_steps": 3}, "no data from before the incident was kept", "or with --window all"),
        ({"window_steps": -1}, "no data from before the incident was kept", "--state-every STEPS"),
    ],
)
def test_what_was_asked_for_is_not_what_is_advised(tmp_path: Path, config: dict[str, int], why: str, hint: str) -> None:
    error = frozen(run_of(tmp_path, **config))
    assert isinstance(error, NotReplayable) and error.evidence.is_dir()
    assert f"no capsule of rank 0: {why}; its log is kept" in str(error) and hint in error.hint


def test_where_nothing_was_to_be_kept_there_is_no_evidence(tmp_path: Path) -> None:
    run = run_of(tmp_path, state_every=0)
    error = frozen(run)
    assert not isinstance(error, NotReplayable) and not run.capsules.exists()
    assert str(error) == "no capsule of rank 0: no data from before the incident was kept"


def test_evidence_that_cannot_be_made_hides_no_reason(tmp_path: Path) -> None:
    run = run_of(tmp_path, state_every=2)
    (run.ranks / "0" / "rank.json").unlink()
    error = frozen(run)
    assert not isinstance(error, NotReplayable)
    assert "it took no state snapshot before the incident; its log is not kept as evidence: " in str(error)


@pytest.mark.parametrize(
    ("every", "incident", "newest", "steps"),
    [(10, 200, 220, 50), (2, 5, 10, 10), (1, 7, 9, 5), (50, 200, 210, 100), (10, 190, 300, 200)],
)
def test_a_round_number_of_steps_that_would_have_kept_one(every: int, incident: int, newest: int, steps: int) -> None:
    assert less_often(every, incident, newest) == steps


def test_of_later_steps_a_round_number_is_advised(tmp_path: Path) -> None:
    run = run_of(tmp_path, state_every=1)
    add_states(run, tmp_path / "capsule", 6, 7)
    assert frozen(run).hint == "take them less often: --state-every 5"


def test_before_the_first_snapshot_there_can_be_none(tmp_path: Path) -> None:
    error = frozen(run_of(tmp_path, state_every=50))
    assert "rank 0: it was in step 5, before the first state snapshot (--state-every 50); its log" in str(error)
    assert "--window all" in error.hint


def test_a_full_disk_hides_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path, state_every=2)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(nothing_before, "assemble", full)
    assert "its log is not kept as evidence: [Errno 28] No space left on device" in str(frozen(run))


def test_what_the_log_no_longer_reaches_back_to_is_named(tmp_path: Path) -> None:
    """Though it is from before the incident."""
    run = run_of(tmp_path, checkpoint_every=1, state_every=1)
    (run.ranks / "0" / "events.00000.seg").rename(run.ranks / "0" / "events.00000.before")
    log = TinyLog(run.ranks / "0", segment_bytes=1 << 12)
    for step in range(12):
        for number in (1, 2):
            log.complete(log.issue(step, number))
        log.next_segment()
    add_states(run, tmp_path / "capsule", 2)
    add_checkpoints(run, Moment(1))
    assert fold(log.folder, 9 << 12)
    error = frozen(run)
    assert isinstance(error, NotReplayable)
    assert str(error).startswith(
        "no capsule of rank 0: the log no longer reaches back to the checkpoint at 1.0 and the snapshot of step 2; "
    )
    assert "--log-bytes" in error.hint
