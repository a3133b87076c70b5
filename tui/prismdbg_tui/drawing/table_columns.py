"""Which columns the table of collectives has at a width, and how wide each is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from prismdbg_tui.drawing import figures


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    title: str
    width: int
    right: bool = False


_MOMENT = Column("moment", "moment", 8)
_OP = Column("op", "op", 16)
_GROUP = Column("group", "group", 6)
_SEQ = Column("seq", "seq", 6, right=True)
_BYTES = Column("bytes", "bytes", 9, right=True)
_TOOK = Column("took", "took", 8, right=True)
_BAR = Column("bar", "", 1)
_VERDICT = Column("verdict", "verdict", 13)  # "= ✕ first NaN"
_SOURCE = Column("source", "source", 12)

_LEAST_NAME = 3  # characters of a file's name

# what goes first where there is no room
_LEAST = (_SEQ, _BAR, _GROUP, _BYTES, _SOURCE)
_WIDENED = (("source", 2), ("op", 8), ("source", 12), ("moment", 6), ("group", 6), ("verdict", 4))


@lru_cache(maxsize=512)
def columns_for(width: int) -> list[Column]:
    columns = [_MOMENT, _OP, _GROUP, _SEQ, _BYTES, _TOOK, _BAR, _VERDICT, _SOURCE]
    left = drop(columns, _LEAST, width)
    for name, most in _WIDENED:
        for place, column in enumerate(columns):
            if column.name == name and left > 0:
                columns[place] = replace(column, width=column.width + min(left, most))
                left -= min(left, most)
    return columns


def drop(columns: list[Column], least: tuple[Column, ...], width: int) -> int:
    """Removes columns, the first of `least` first, until the rest fits into `width`. Returns the width that is left."""
    for dropped in least:
        if _width(columns) <= width:
            break
        columns.remove(dropped)
    return width - _width(columns)


def _width(columns: list[Column]) -> int:
    return 1 + sum(column.width + 1 for column in columns)


def fitted(text: str, column: Column) -> str:
    text = figures.clean(text).replace("\n", " ")
    text = _with_line(text, column.width) if column.name == _SOURCE.name else text
    text = figures.cut(text, column.width)
    return text.rjust(column.width) if column.right else text.ljust(column.width)


def _with_line(source: str, width: int) -> str:
    """`train_…:61`: two lines of a file are to look different, however long its name is."""
    name, _, line = source.rpartition(":")
    room = width - len(line) - 1
    if len(source) <= width or room < _LEAST_NAME:
        return source
    return f"{figures.cut(name, room)}:{line}"
