"""Compares the rank on the screen with another recording of it, or with another rank of its run. A worker's work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from prismdbg.errors import PrismError, UsageError
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.typed_path import typed_path
from prismdbg_tui.refusals import of_reading
from prismdbg_tui.session.messages import Compared, Failed

if TYPE_CHECKING:
    from prismdbg.api.recording import Rank, Recording
    from prismdbg.capsule.capsule_dir import Capsule

_WHAT = re.compile(r"(?P<path>.*?)(?:(?:^|\s+)rank\s+(?P<rank>\d{1,9}))?")


def compared(capsule: Capsule, what: str) -> Compared | Failed:
    """`what`: a RUN or a CAPSULE, `rank 1` behind it for another rank, or `rank 1` alone for one of the same run."""
    try:
        return _compared(capsule, what)
    except (PrismError, OSError) as error:
        foreseen = of_reading(error, "recording")
        return Failed(str(foreseen), foreseen.hint or "")


def _compared(capsule: Capsule, what: str) -> Compared:
    from prismdbg.api.recording import open_recording
    from prismdbg.diagnosis.rank_comparison import Side, compare
    from prismdbg.log.rank_log import columns_of
    from prismdbg.render.comparison_text import comparison_lines

    found = _WHAT.fullmatch(what.strip())
    assert found is not None, "an empty path fits, too"
    path = typed_path(found["path"]) if found["path"] else _run_of(capsule)
    number = int(found["rank"]) if found["rank"] else capsule.manifest.rank
    with open_recording(capsule.path) as own, open_recording(path, at_once=2) as other:
        a, b = own[capsule.manifest.rank], _rank(other, number)
        sides = [Side(log=columns_of(rank.log), payload=rank.payload, arrays=rank.received) for rank in (a, b)]
        result = compare(*sides)
        lines = comparison_lines(result, (a.groups, b.groups), same_rank=a.number == b.number)
    call = result.difference.calls[0] if result.difference is not None else None
    title = f"A: this capsule, rank {a.number}   B: {path}, rank {b.number}"
    return Compared(title, tuple(lines), equal=result.is_equal, moment=call.moment if call is not None else None)


def _rank(recording: Recording, number: int) -> Rank:
    if number not in recording.ranks:
        there = ", ".join(map(str, sorted(recording.ranks)))
        raise UsageError(
            f"{recording.path} has no rank {number}",
            hint=f"name one of its ranks ({there}): {recording.path} rank N",
        )
    return recording[number]


def _run_of(capsule: Capsule) -> Path:
    run = capsule.path.resolve().parent.parent
    if not RunFolder(run).run_json.is_file():
        raise UsageError(
            "the RUN of this capsule was not found", hint="type the path of the RUN or CAPSULE to compare with"
        )
    return run
