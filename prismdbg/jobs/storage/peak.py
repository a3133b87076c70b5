"""How much memory a rank had at its peak: kept beside its log while it lives, for it cannot be asked afterwards."""

from __future__ import annotations

from pathlib import Path

from prismdbg.capsule.limits import MAX_PEAK_BYTES
from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.run_folder import read_json, write_json
from prismdbg.settings.process_stat import text_of

FILE = "peak.json"
_WORTH_WRITING = 1.05  # times what is kept


def peak_bytes(pid: int) -> int:
    """Of the process itself, not of its children; 0 where it is gone."""
    try:
        lines = text_of(Path(f"/proc/{pid}/status")).splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


class Peaks:
    """Of the ranks of one run, as they are looked at."""

    def __init__(self) -> None:
        self._kept: dict[Path, int] = {}

    def look(self, folder: Path, pid: int) -> None:
        now = peak_bytes(pid)
        if now > self._kept.get(folder, 0) * _WORTH_WRITING:
            write_json(folder / FILE, {"peak_bytes": now})
            self._kept[folder] = now


def peak_of(folder: Path) -> int:
    """Of the rank that has its log there; 0 where nobody looked, or where it cannot be read."""
    try:
        kept = read_json(folder / FILE).get("peak_bytes", 0)
    except CapsuleError:  # damaged: a capsule does without
        return 0
    return kept if type(kept) is int and 0 < kept <= MAX_PEAK_BYTES else 0
