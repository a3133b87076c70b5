"""A timeline as a file: a picture (`.svg`), or a table with a row per collective (`.csv`)."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.new_file import by_suffix, new_file
from prismdbg.errors import UsageError
from prismdbg.log.rank_log import columns_of, read_log
from prismdbg.log.timeline_svg import timeline_svg
from prismdbg.model.collective import group_title
from prismdbg.model.meanwhile import one_by_one
from prismdbg.model.plain_text import plain
from prismdbg.model.plurals import counted

TIMELINE = "timeline"
MOST_RANKS, MOST_CALLS = 64, 2000  # of a picture
COLUMNS = (
    "rank", "moment", "op", "group", "seq", "state", "bytes", "began_ns", "duration_ns", "sent_nonfinite", "source",
)  # fmt: skip
_FORMULAS = ("=", "+", "-", "@")  # a spreadsheet would compute a text that begins so
Logs = Mapping[int, RankLog]


def export_timeline(capsule: Capsule, path: Path) -> str:
    """The timeline of the capsule's rank in a new file; what was written, as a sentence. `UsageError` as `new_file`, or
    where the name's end is no format."""
    write = require_writer(path)
    with new_file(path) as partial:
        count = write(partial, {capsule.manifest.rank: read_log(capsule.log)})
    return f"{path}: {counted(count, 'collective')}"


def require_writer(path: Path, last: int | None = None) -> Callable[[Path, Logs], int]:
    """By the end of its name; `UsageError` where it is none of them, or a picture of more than `MOST_CALLS` is asked
    for. What it returns writes the `last` collectives of each rank of `logs`, or all that it can, and returns how many.
    """
    writer = by_suffix(path, _WRITERS)
    if writer is write_svg and last is not None and last > MOST_CALLS:
        raise UsageError(
            f"a picture shows at most {MOST_CALLS} collectives of a rank, but --last is {last}",
            hint=f"give --last {MOST_CALLS} or less, or a name that ends in .csv",
        )
    return lambda file, logs: writer(file, logs, last)


def write_svg(path: Path, logs: Logs, last: int | None = None) -> int:
    """The last collectives of each rank: at most `MOST_CALLS` of `MOST_RANKS` ranks."""
    most_calls = last or MOST_CALLS
    drawn = timeline_svg(logs, most_ranks=MOST_RANKS, most_calls=most_calls, legend=True)
    if not drawn:
        raise UsageError("no collective was recorded", hint="choose a name that ends in .csv for an empty table")
    path.write_text(drawn, "utf-8")
    ranks = [len(log.collectives) for _, log in sorted(logs.items()) if log.collectives][:MOST_RANKS]
    return sum(min(count, most_calls) for count in ranks)


def write_csv(path: Path, logs: Logs, last: int | None = None) -> int:
    """The `last` collectives of each rank, or all. began_ns: since 1970; duration_ns: empty where the collective did
    not end; bytes: that it moves."""
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for rank, log in one_by_one(sorted(logs.items()), "writing the calls of ranks"):
            columns = columns_of(log)
            first = 0 if last is None else max(len(log.collectives) - last, 0)
            numbers = zip(columns.seq[first:].tolist(), columns.size_bytes[first:].tolist(), strict=True)
            for call, (seq, size_bytes) in zip(log.collectives[first:], numbers, strict=True):
                ended = call.time_completed_ns
                out.writerow(
                    [
                        rank, call.moment, _cell(call.name), _cell(group_title(log.groups, call.group)), seq,
                        call.state, size_bytes, call.time_created_ns + log.wall_offset_ns,
                        "" if ended is None else ended - call.time_created_ns, int(call.sent_nonfinite),
                        _cell(call.place),
                    ]
                )  # fmt: skip
                count += 1
    return count


def _cell(text: str) -> str:
    shown = plain(text)
    return f"'{shown}" if shown.startswith(_FORMULAS) else shown


_WRITERS: dict[str, Callable[[Path, Logs, int | None], int]] = {".svg": write_svg, ".csv": write_csv}
