"""The memory pane of a rank that goes on: its trace has its whole length from the begin and fills up."""

from __future__ import annotations

from pathlib import Path

from prismdbg_tui.memory.choices import MemoryChoices, MemoryPlace
from prismdbg_tui.memory.reader import MemoryReader
from traces import TraceBuilder

from prismdbg.model.moment import Moment


def test_what_a_rank_allocates_later_is_seen(tmp_path: Path) -> None:
    made = TraceBuilder(tmp_path / "trace", now=Moment(0, 1, 2))
    made.allocate(500)
    position, reader = MemoryChoices(lambda: None), MemoryReader()
    request = position.request(made.write(), MemoryPlace(Moment(5), None))
    assert reader.look(request).program_bytes == 500
    made.allocate(70)
    made.write()
    assert reader.look(request).program_bytes == 570


def test_the_peak_is_named_by_its_own_moment(tmp_path: Path) -> None:
    """Not by the first of all those that its point on the curve stands for."""
    made = TraceBuilder(tmp_path / "trace")
    for op in range(1, 500):
        made.now = Moment(0, 1, op)
        made.free(made.allocate(10 if op != 303 else 1000))
    view = MemoryReader().look(MemoryChoices(lambda: None).request(made.write(), None))
    assert view.curve is not None
    assert view.curve.moments[view.curve.peak] == Moment(0, 1, 303)
