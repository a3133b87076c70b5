"""From which step on a NaN is the one that a capsule was made for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from capsules import MANIFEST, RANK
from tiny_log import TinyLog

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.debugger.recorded_nan import nan_since
from prismdbg.model.moment import Moment

STEPS = 4


def capsule_with(
    folder: Path, bad: tuple[int, ...], kind: IncidentKind = IncidentKind.NAN, moment_a: Moment = MANIFEST.moment_a
) -> Capsule:
    log = TinyLog(folder / "log")
    log.group("0", (0, 1))
    for step in range(STEPS):
        log.step(step)
        log.complete(log.issue(step, 1, flags=fmt.IssueFlag.SENT_NONFINITE if step in bad else 0))
    incident = Incident(kind=kind, text="", moment=Moment(3, 1))
    with CapsuleWriter(folder / "capsule") as writer:
        writer.add_tree(layout.LOG, folder / "log")
        writer.add_json(layout.RANK, RANK)
        span = {"moment_a": moment_a, "replayable_from": moment_a, "moment_b": Moment(3, 1)}
        return writer.finish(replace(MANIFEST, incident=incident, **span))


@pytest.mark.parametrize(("bad", "since"), [((3,), 0), ((0, 3), 3), ((2, 3), 3)])
def test_only_where_the_rank_had_others_before(tmp_path: Path, bad: tuple[int, ...], since: int) -> None:
    assert nan_since(capsule_with(tmp_path, bad)) == since


def test_those_before_the_start_moment_are_not_replayed(tmp_path: Path) -> None:
    assert nan_since(capsule_with(tmp_path, (0, 3), moment_a=Moment(1, 1))) == 0


def test_of_another_incident_or_a_log_that_cannot_be_read_nothing_is_known(tmp_path: Path) -> None:
    assert nan_since(capsule_with(tmp_path, (0, 3), IncidentKind.EXCEPTION)) == 0
    capsule = capsule_with(tmp_path / "other", (0, 3))
    for file in capsule.log.iterdir():
        file.unlink()
    assert nan_since(capsule) == 0
