"""The memory pane of a rank that goes on: its trace has its whole length from the begin and fills up."""

from __future__ import annotations

from pathlib import Path

from prismdbg_tui.memory_looking import MemoryLooker
from prismdbg_tui.memory_sight import MemorySight
from tiny_trace import TinyTrace

from prismdbg.model.moment import Moment


def test_what_a_rank_allocates_later_is_seen(tmp_path: Path) -> None:
    made = TinyTrace(tmp_path / "trace")
    made.allocate(Moment(0, 1, 2), 500)
    sight, looker = MemorySight(lambda: None), MemoryLooker()
    request = sight.request(made.close(), Moment(5))
    assert looker.look(request).program_bytes == 500
    made.allocate(Moment(0, 2, 1), 70)
    made.close()
    assert looker.look(request).program_bytes == 570


def test_the_peak_is_named_by_its_own_moment(tmp_path: Path) -> None:
    """Not by the first of all those that its point on the curve stands for."""
    made = TinyTrace(tmp_path / "trace")
    for op in range(1, 500):
        made.free(Moment(0, 1, op), made.allocate(Moment(0, 1, op), 10 if op != 303 else 1000))
    view = MemoryLooker().look(MemorySight(lambda: None).request(made.close(), None))
    assert view.curve is not None
    assert view.curve.moments[view.curve.peak] == view.peak_moment == Moment(0, 1, 303)
