"""What a simulated rank does, row by row: the table of collectives with the columns that a simulation knows."""

from __future__ import annotations

from dataclasses import replace

from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.table_columns import Column, drop
from prismdbg_tui.widgets.collectives import Collectives

_NUMBER = Column("moment", "#", 7, right=True)
_WHAT = Column("op", "what", 20)
_WHERE = Column("group", "on", 10)
_BYTES = Column("bytes", "bytes", 9, right=True)
_TOOK = Column("took", "took", 8, right=True)
_BAR = Column("bar", "", 1)
_LATE = Column("late", "waits", 11, right=True)
_SOURCE = Column("source", "source", 20)
_ALL = (_NUMBER, _WHAT, _WHERE, _BYTES, _TOOK, _BAR, _LATE, _SOURCE)
_LEAST = (_SOURCE, _BAR, _BYTES)  # what goes first where there is no room


class RankTable(Collectives):
    BORDER_TITLE = "Entries in program order"

    def columns(self, width: int) -> list[Column]:
        columns = list(_ALL)
        spare = max(drop(columns, _LEAST, width), 0)
        more = {"op": min(spare // 2, 20), "source": spare - min(spare // 2, 20)}
        return [replace(column, width=column.width + more.get(column.name, 0)) for column in columns]

    def _cell(self, name: str, row: int) -> tuple[str, str]:
        recording = self._recording
        assert recording is not None
        if name == "moment":
            return figures.count(row + 1), ""
        if name == "bytes":
            size_bytes = int(recording.columns.size_bytes[row])
            return (figures.size(size_bytes) if size_bytes else ""), ""
        if name == "late":
            late_ns = int(recording.waited_for_others_ns[row])
            return (figures.duration(late_ns) if late_ns else ""), ""
        return super()._cell(name, row)
