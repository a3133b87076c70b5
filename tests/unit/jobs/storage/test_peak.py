"""The memory that a rank had at its peak, kept beside its log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prismdbg.capsule.limits import MAX_PEAK_BYTES
from prismdbg.jobs.storage.peak import FILE, Peaks, peak_of


def test_it_is_kept(tmp_path: Path) -> None:
    Peaks().look(tmp_path, os.getpid())
    assert peak_of(tmp_path) > 1 << 20


TOO_MUCH = f'{{"peak_bytes": {MAX_PEAK_BYTES + 1}}}'


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", '{"peak_bytes": -1}', '{"peak_bytes": "1"}', TOO_MUCH, "\0"],
)
def test_a_damaged_one_costs_no_capsule(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert peak_of(tmp_path) == 0
