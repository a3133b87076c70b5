"""What a checkpoint will take is said before it is taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prismdbg.errors import FacilityError
from prismdbg.jobs.capture import costs

MIB = 1 << 20


def test_what_the_rank_has_on_its_gpu_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "image_bytes", lambda pid: 100 * MIB)
    monkeypatch.setattr(costs, "require_room", lambda pid: 2000 * MIB)
    assert costs.predict_image(os.getpid(), tmp_path / "new") == "the checkpoint will take about 2100 MiB"
    monkeypatch.setattr(costs, "require_room", lambda pid: 1 << 60)
    with pytest.raises(FacilityError, match=f"and {tmp_path} has"):
        costs.predict_image(os.getpid(), tmp_path / "new")
