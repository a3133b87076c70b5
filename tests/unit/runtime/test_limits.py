"""What a replay may take where nobody says, and how a rank's memory is known."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from prismdbg.jobs.storage.peak import Peaks, peak_bytes, peak_of
from prismdbg.runtime import limits
from prismdbg.runtime.limits import MARGIN_BYTES, Asked, reached, usual

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("recorded_bytes", "memory_bytes"),
    [(0, MACHINE // 2), (1 << 20, max(MACHINE // 2, MARGIN_BYTES + (2 << 20))), (MACHINE, MACHINE * 9 // 10)],
)
def test_memory_goes_by_what_the_recorded_rank_held(
    recorded_bytes: int, memory_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "available_bytes", lambda: MACHINE)
    found = usual(recorded_bytes)
    assert found.memory_bytes == min(memory_bytes, MACHINE * 9 // 10)
    assert Asked(memory_bytes=1 << 30).over(found).recorded_bytes == recorded_bytes


def test_who_met_the_limit_of_memory_hears_what_the_recorded_rank_held() -> None:
    most = replace(usual(), memory_bytes=1 << 30, recorded_bytes=3 << 30)
    assert "memory: 1024MiB; the recorded rank held 3072MiB" in str(reached("memory", most))
    assert "recorded" not in str(reached("pids", most)) + str(reached("memory", usual()))


@pytest.mark.parametrize(("shared", "option"), [(8 << 30, "--limit-memory"), (4 << 30, "--limit-shm")])
def test_who_filled_shared_memory_hears_which_limit_makes_it_larger(shared: int, option: str) -> None:
    most = replace(usual(), memory_bytes=8 << 30, shared_bytes=shared)
    assert "--limit-shm" in str(reached("shm", most).hint)
    without = reached("shm", most.without_group())
    assert f"raise it with {option}" in str(without.hint) and "4096MiB" in str(without)


def test_a_peak_is_kept_beside_the_log(tmp_path: Path) -> None:
    peaks = Peaks()
    peaks.look(tmp_path, os.getpid())
    assert 1 << 20 < peak_of(tmp_path) <= peak_bytes(os.getpid())
    kept = (tmp_path / "peak.json").stat().st_ino
    peaks.look(tmp_path, os.getpid())
    assert (tmp_path / "peak.json").stat().st_ino == kept, "only a higher one is written"


def test_of_one_that_nobody_saw_nothing_is_known(tmp_path: Path) -> None:
    assert peak_of(tmp_path) == 0
    assert peak_bytes((1 << 22) + 1) == 0
    Peaks().look(tmp_path, (1 << 22) + 1)
    assert not (tmp_path / "peak.json").exists()
    (tmp_path / "peak.json").write_text('{"peak_bytes": "much"}')
    assert peak_of(tmp_path) == 0


def test_what_a_capsule_says_it_held_takes_no_memory_that_others_use(monkeypatch: pytest.MonkeyPatch) -> None:
    free = MACHINE // 2 + 4096
    monkeypatch.setattr(limits, "available_bytes", lambda: free)
    assert usual(1 << 50).memory_bytes == free
    monkeypatch.setattr(limits, "available_bytes", lambda: 0)
    assert usual(1 << 50).memory_bytes == usual(0).memory_bytes == MACHINE // 2


def test_the_kernels_estimate_of_what_is_free() -> None:
    assert 0 < limits.available_bytes() <= MACHINE
