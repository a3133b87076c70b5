"""The values of the Python API as rich shows them in a terminal: what notebooks show, without pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from prismdbg.model.collective import group_title
from prismdbg.model.plain_text import plain

if TYPE_CHECKING:
    from prismdbg.api.recording import Rank, Recording

_CALLS = 10


def rank_table(rank: Rank) -> Group:
    """Its last collectives."""
    table = Table("moment", "operator", "group", "state", "source")
    calls = rank.collectives
    for row in range(max(len(calls) - _CALLS, 0), len(calls)):
        call = calls[row]
        cells = (str(call.moment), call.name, group_title(rank.groups, call.group), str(call.state), call.place)
        table.add_row(*(Text(plain(cell)) for cell in cells))
    return Group(Text(repr(rank)), table)


def recording_text(recording: Recording) -> Group:
    """Its verdicts, and a line for each rank."""
    found = recording.why()
    verdicts = [f"{verdict.certainty}: {verdict.text}" for verdict in found.verdicts] or [found.summary]
    return lines([repr(recording), *verdicts, *map(repr, recording.ranks.values())])


def lines(texts: Sequence[str]) -> Group:
    return Group(*(Text(plain(text)) for text in texts))
