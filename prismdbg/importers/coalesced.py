"""Coalesced regions of a Flight Recorder dump (an uneven all_gather, `batch_isend_irecv`).

torch records the parts of a region without a work, so that they stay scheduled, and then the region's end, which has
the state and the times of all. The end is never a message for torch: that of a batch of messages has the number of the
group's previous collective.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from prismdbg.importers.dump_form import Entry

_END = re.compile(r"\w+:(?:[A-Z_]+_)?coalesced")


def without_ends(entries: Iterable[Entry]) -> list[Entry]:
    """In order, each part with the state and times of its region. Without the region that the ring begins in: nobody
    knows which part is its first."""
    ordered = sorted(entries, key=lambda entry: entry["record_id"])
    calls: list[Entry] = []
    since_end: defaultdict[str, list[int]] = defaultdict(list)  # by group, places of calls
    numbers: dict[str, int] = {}  # of each group's last entry
    cut: set[int] = set()
    for entry in ordered:
        group, number = entry["process_group"][0], entry["collective_seq_id"]
        is_end = _is_end(entry)
        if is_end and (parts := list(_parts(entry, calls, since_end[group]))):
            if calls[parts[-1]] is ordered[0] and ordered[0]["record_id"] > 0:
                cut.update(parts)
            for place in parts:
                calls[place] = _ended(calls[place], entry)
            since_end[group].clear()
        elif not is_end or numbers.get(group, number) < number:  # before version 2.7 collectives had no parts
            since_end[group].append(len(calls))
            calls.append(entry)
        numbers[group] = number
    return [call for place, call in enumerate(calls) if place not in cut]


def _is_end(entry: Entry) -> bool:
    has_tensors = entry.get("input_sizes") or entry.get("output_sizes")
    return not has_tensors and _END.fullmatch(entry["profiling_name"]) is not None


def _parts(end: Entry, calls: Sequence[Entry], places: Sequence[int]) -> Iterator[int]:
    """The last first."""
    return takewhile(lambda place: _is_part(calls[place], end), reversed(places))


def _is_part(call: Entry, end: Entry) -> bool:
    if call["state"] != "scheduled":
        return False
    if call["is_p2p"]:
        return call.get("p2p_seq_id") == end.get("p2p_seq_id")
    return call["collective_seq_id"] == end["collective_seq_id"]


def _ended(part: Entry, end: Entry) -> Entry:
    return {
        **part,
        "state": end["state"],
        "retired": end.get("retired", False),
        "time_discovered_completed_ns": end.get("time_discovered_completed_ns"),
    }
