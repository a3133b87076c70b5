"""Whether a rank's process is still there, and whether it said goodbye."""

from __future__ import annotations

from pathlib import Path

from prismdbg.capsule.log_reader import read_log
from prismdbg.model.moment import Moment
from prismdbg.workflows.run_folder import read_json


def is_alive(pid: int) -> bool:
    """A zombie is dead: its launcher has not looked yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


class RankProcess:
    """One attempt of a rank, by its log folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.pid = int(read_json(folder / "rank.json")["pid"])
        self._told = False

    def is_alive(self) -> bool:
        return is_alive(self.pid)

    def died_without_a_word(self) -> bool:
        """True once, when the process is gone and its log has neither an end nor an incident."""
        if self._told or self.is_alive():
            return False
        self._told = True
        return not any(note.kind in ("exit", "incident") for note in read_log(self._folder).notes)

    def last_moment(self) -> Moment:
        collectives = read_log(self._folder).collectives
        return collectives[-1].moment if collectives else Moment(0)
