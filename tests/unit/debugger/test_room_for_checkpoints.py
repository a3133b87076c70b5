"""Checkpoints in a replay leave some of the disk free, and say how much."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from prismdbg.debugger.saved_checkpoints import SavedCheckpoints
from prismdbg.errors import FacilityError
from prismdbg.jobs.capture.costs import SPARE_BYTES

MIB = 1 << 20


@pytest.mark.parametrize(
    ("next_bytes", "free", "said", "hint"),
    [
        (0, 951 * MIB, "no space for a checkpoint: 951 MiB are free in", "free 73 MiB of"),
        (200 * MIB, 1200 * MIB, "no space for a checkpoint of about 200 MiB: 1200 MiB are free in", "free 24 MiB of"),
    ],
)
def test_too_little_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_bytes: int, free: int, said: str, hint: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(FacilityError) as raised:
        SavedCheckpoints(tmp_path).require_room(next_bytes)
    assert said in str(raised.value) and "and 1024 MiB are to stay free" in str(raised.value)
    assert hint in raised.value.hint


def test_room_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=SPARE_BYTES + MIB))
    SavedCheckpoints(tmp_path).require_room(MIB)
