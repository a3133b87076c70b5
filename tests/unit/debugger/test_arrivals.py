"""Who came to a collective when, by the logs of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.debugger import arrivals as module
from prismdbg.debugger.arrivals import Arrivals
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.log.columns import LogColumns, read_columns
from tests.bench.long_run import STEPS_PER_SEGMENT, LongRun
from tests.tiny_log import TinyLog


def arrivals(run: Path, device: str, op: str = "allreduce_") -> list[tuple[int, int]]:
    """Of a call that rank 1 issues 1 ns later, as its second one."""
    for rank in (0, 1):
        log = TinyLog(run / "ranks" / str(rank), rank)
        if rank:
            log.issue(0, 1, group="1", seq=0)
        log.complete(log.issue(0, 1 + rank, seq=0, device=device, op=op))
    found = Arrivals(RunFolder(run)).of("group 0 #0", [0, 1])
    return [(each.rank, each.after_first_ns) for each in found]


def test_who_came_after_the_first(tmp_path: Path) -> None:
    assert arrivals(tmp_path, "cpu") == [(0, 0), (1, 1)]


def test_to_a_call_on_a_device_nobody_comes_when_it_is_issued(tmp_path: Path) -> None:
    assert arrivals(tmp_path, "cuda:0") == []


def test_a_barrier_of_a_device_holds_the_host(tmp_path: Path) -> None:
    assert arrivals(tmp_path, "cuda:0", "barrier") == [(0, 0), (1, 1)]


def test_a_call_of_a_long_log_is_found_in_its_end_else_in_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int | None] = []

    def noted(folder: Path, newest_bytes: int | None = None) -> LogColumns:
        read.append(newest_bytes)
        return read_columns(folder, newest_bytes)

    monkeypatch.setattr(module, "read_columns", noted)
    monkeypatch.setattr(module, "LAST_BYTES", 1)
    long = LongRun(tmp_path / "run", 2)
    long.write(2 * STEPS_PER_SEGMENT)
    whole = {rank: read_columns(long.run.latest(rank)) for rank in (0, 1)}
    last = int(whole[1].seq[whole[1].group == 5][-1])
    assert whole[1].texts[5] == "0"
    found = Arrivals(long.run)
    for seq, parts in ((last, [1, 1]), (0, [None, None]), (last + 1, [])):
        read.clear()
        late_ns = [int(log.begun_ns[(log.group == 5) & (log.seq == seq)].sum()) for log in whole.values()]
        expected = sorted((late_ns[rank] - min(late_ns), rank) for rank in (0, 1)) if seq <= last else []
        came = found.of(f"group 0 #{seq}", [0, 1])
        assert [(each.after_first_ns, each.rank) for each in came] == expected
        assert read == parts


def test_a_group_is_not_taken_for_one_whose_name_begins_alike(tmp_path: Path) -> None:
    for rank in (0, 1):
        log = TinyLog(tmp_path / "ranks" / str(rank), rank)
        log.complete(log.issue(0, 1, group="0 #1", seq=2))
        log.complete(log.issue(0, 2, group="0", seq=12))
    found = Arrivals(RunFolder(tmp_path))
    assert len(found.of("group 0 #1 #2", [0, 1])) == 2
    assert found.of("group 0 #1 #12", [0, 1]) == ()
    assert found.of("recv group 0 peer 1 tag 0 #12", [0, 1]) == ()
