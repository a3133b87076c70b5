"""From which step on a NaN is the one that a capsule was made for."""

from __future__ import annotations

from pathlib import Path

import pytest
from capsules import capsule_with_nan

from prismdbg.capsule.manifest import IncidentKind
from prismdbg.debugger.recorded_nan import nan_since
from prismdbg.model.moment import Moment


@pytest.mark.parametrize(("bad", "since"), [((3,), 0), ((0, 3), 3), ((2, 3), 3)])
def test_only_where_the_rank_had_others_before(tmp_path: Path, bad: tuple[int, ...], since: int) -> None:
    assert nan_since(capsule_with_nan(tmp_path, bad)) == since


def test_those_before_the_start_moment_are_not_replayed(tmp_path: Path) -> None:
    assert nan_since(capsule_with_nan(tmp_path, (0, 3), moment_a=Moment(1, 1))) == 0


def test_of_another_incident_or_a_log_that_cannot_be_read_nothing_is_known(tmp_path: Path) -> None:
    assert nan_since(capsule_with_nan(tmp_path, (0, 3), IncidentKind.EXCEPTION)) == 0
    capsule = capsule_with_nan(tmp_path / "other", (0, 3))
    for file in capsule.log.iterdir():
        file.unlink()
    assert nan_since(capsule) == 0
