"""A rank's log whose collectives are decoded as they are asked for: it costs what is looked at, not its length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import overload

from prismdbg.capsule.log.events import RankLog
from prismdbg.log.columns import LogColumns, read_whole
from prismdbg.log.values import of_values
from prismdbg.model.collective import Collective

VALUES_KEPT = 1 << 18  # about 256 MiB


class Rows(Sequence[Collective]):
    """In the order of issue. The first that are asked for are kept, so that a short log is decoded once."""

    def __init__(self, columns: LogColumns) -> None:
        self.columns = columns
        self._kept: dict[int, Collective] = {}

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, row: int) -> Collective: ...
    @overload
    def __getitem__(self, row: slice) -> list[Collective]: ...
    def __getitem__(self, row: int | slice) -> Collective | list[Collective]:
        places = range(len(self))[row]
        return self._row(places) if isinstance(places, int) else [self._row(place) for place in places]

    def __iter__(self) -> Iterator[Collective]:
        return map(self._row, range(len(self)))

    def _row(self, row: int) -> Collective:
        if (known := self._kept.get(row)) is not None:
            return known
        decoded = self.columns.collective(row)
        if len(self._kept) < VALUES_KEPT:
            self._kept[row] = decoded
        return decoded


def read_log(folder: Path, newest_bytes: int | None = None) -> RankLog:
    """The whole log of one rank, or only its end, as `read_columns`. Raises `CapsuleError` where there is none or it is
    damaged."""
    return rank_log(read_whole(folder, newest_bytes))


def decoded(log: RankLog) -> RankLog:
    """All of it as values, for when its files will be gone."""
    return replace(log, collectives=list(log.collectives))


def rank_log(columns: LogColumns) -> RankLog:
    return RankLog(
        columns.rank,
        columns.pid,
        columns.wall_offset_ns,
        collectives=Rows(columns),
        steps=columns.steps,
        notes=columns.notes,
        groups=columns.groups,
    )


def columns_of(log: RankLog) -> LogColumns:
    """Of a log of values, too: then texts and stacks have numbers of their own."""
    return log.collectives.columns if isinstance(log.collectives, Rows) else of_values(log)
