"""Which boot of which machine this is: two machines may have the same host name, and which of its clocks are ours."""

from __future__ import annotations

from pathlib import Path


def boot_id() -> str:
    """Linux's own, drawn at each boot; empty in a sandbox that does not show it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def time_namespace() -> int:
    """That of this process: its CLOCK_MONOTONIC may be another one than that of its machine. 0 where the kernel has
    none."""
    try:
        return Path("/proc/self/ns/time").stat().st_ino
    except OSError:
        return 0
