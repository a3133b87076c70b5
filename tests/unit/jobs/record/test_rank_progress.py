"""What a heartbeat says of a rank whose log is elsewhere."""

from __future__ import annotations

from pathlib import Path

from tiny_log import TinyLog

from prismdbg.capsule.log.follower import LogFollower
from prismdbg.jobs.record.rank_progress import RankProgress
from prismdbg.jobs.storage.run_folder import RunFolder


class Told:
    """The word of one rank after what its log has so far."""

    def __init__(self, folder: Path) -> None:
        self.log, self._follower = TinyLog(folder), LogFollower(folder)
        self._progress = RankProgress(RunFolder(folder.parent))
        self.log.group("0", (0, 1), "default_pg")

    def word(self) -> str:
        for event in self._follower.poll():
            self._progress.feed("0", event)
        return str(self._progress.to_json([self.log.folder])["0"]["word"])


def test_a_rank_that_goes_on_after_an_exception_of_a_thread_has_not_failed(tmp_path: Path) -> None:
    told = Told(tmp_path / "0")
    told.log.complete(told.log.issue(0, 1))
    assert told.word() == ""
    told.log.note("incident", incident="exception", text="OSError: no route", thread=True, time_ns=2000)
    assert told.word() == "raised"
    told.log.complete(told.log.issue(0, 2))
    assert told.word() == ""
    told.log.note("exit", code=0)
    assert told.word() == "ended"


def test_a_rank_that_ends_with_an_exception_has_failed(tmp_path: Path) -> None:
    told = Told(tmp_path / "0")
    told.log.issue(0, 1)
    told.log.note("incident", incident="exception", text="ValueError: 3", time_ns=3000)
    assert told.word() == "raised"
    told.log.note("exit", code=1)
    assert told.word() == "failed"
