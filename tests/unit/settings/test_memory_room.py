"""How much memory a process may still take."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from prismdbg.settings import memory_room


def test_a_process_has_at_most_what_the_machine_has() -> None:
    assert 0 < memory_room.room_bytes(os.getpid()) <= psutil.virtual_memory().total


def test_without_a_control_group_the_machine_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = tmp_path / "meminfo"
    machine.write_text("MemTotal:       24684164 kB\nMemFree:         8474648 kB\nMemAvailable:   23588900 kB\n")
    monkeypatch.setattr(memory_room, "_MACHINE", machine)
    assert memory_room.room_bytes(os.getpid(), tmp_path / "none") == 23588900 * 1024


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_control_group_counts(tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "0::/job/rank\n" if version == 2 else "5:cpu,memory:/job/rank\n"
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    cache = "inactive_file" if version == 2 else "total_inactive_file"
    top = tmp_path / "cgroup" if version == 2 else tmp_path / "cgroup" / "memory"
    monkeypatch.setattr(memory_room, "lines_of", lambda pid: line.splitlines())
    for group, limit in (("job", "max" if version == 2 else str(1 << 62)), ("job/rank", "1000")):
        (top / group).mkdir(parents=True)
        (top / group / names[0]).write_text(limit)
        (top / group / names[1]).write_text("700")
        (top / group / "memory.stat").write_text(f"anon 1\n{cache} 50\n")
    assert memory_room.room_bytes(1, tmp_path / "cgroup") == 350
    (top / "job" / names[0]).write_text("800")
    assert memory_room.room_bytes(1, tmp_path / "cgroup") == 150


def test_a_kernel_that_does_not_say_what_is_available_leaves_the_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, group = tmp_path / "meminfo", tmp_path / "cgroup" / "job"
    machine.write_text("MemTotal:       24684164 kB\nMemFree:         8474648 kB\n")
    monkeypatch.setattr(memory_room, "_MACHINE", machine)
    monkeypatch.setattr(memory_room, "lines_of", lambda pid: ["0::/job"])
    with pytest.raises(OSError, match="MemAvailable"):
        memory_room.room_bytes(1, tmp_path / "cgroup")
    group.mkdir(parents=True)
    for name, text in (("memory.max", "1000"), ("memory.current", "700"), ("memory.stat", "inactive_file 50\n")):
        (group / name).write_text(text)
    assert memory_room.room_bytes(1, tmp_path / "cgroup") == 350
