"""Who came to a collective when, by the logs of a run."""

from __future__ import annotations

from pathlib import Path

from prismdbg.debugger.arrivals import Arrivals
from prismdbg.jobs.storage.run_folder import RunFolder
from tests.tiny_log import TinyLog


def arrivals(run: Path, device: str) -> list[tuple[int, int]]:
    """Of a call that rank 1 issues 1 ns later, as its second one."""
    for rank in (0, 1):
        log = TinyLog(run / "ranks" / str(rank), rank)
        if rank:
            log.issue(0, 1, group="1", seq=0)
        log.complete(log.issue(0, 1 + rank, seq=0, device=device))
    found = Arrivals(RunFolder(run)).of("group 0 #0", [0, 1])
    return [(each.rank, each.after_first_ns) for each in found]


def test_who_came_after_the_first(tmp_path: Path) -> None:
    assert arrivals(tmp_path, "cpu") == [(0, 0), (1, 1)]


def test_to_a_call_on_a_device_nobody_comes_when_it_is_issued(tmp_path: Path) -> None:
    assert arrivals(tmp_path, "cuda:0") == []
