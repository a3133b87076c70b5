"""Which boot of which machine this is: two machines may have the same host name."""

from __future__ import annotations

from pathlib import Path


def boot_id() -> str:
    """Linux's own, drawn at each boot; empty in a sandbox that does not show it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
