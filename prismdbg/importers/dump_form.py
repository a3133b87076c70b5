"""The form of a Flight Recorder dump, as `c10d/FlightRecorder.hpp` has it (version 2.10)."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from prismdbg.capsule.checked_json import Count, at_most
from prismdbg.capsule.limits import MAX_DIMENSIONS

MOST_ENTRIES = 100_000  # torch keeps 2,000 where nobody asks for more


class DumpedFrame(TypedDict):
    name: str
    filename: str
    line: int


class Entry(TypedDict):
    record_id: Count
    process_group: list[str]
    collective_seq_id: Count
    p2p_seq_id: NotRequired[Count]
    profiling_name: str
    is_p2p: bool
    state: str
    time_created_ns: Count
    time_discovered_completed_ns: NotRequired[Count | None]
    retired: NotRequired[bool]
    duration_ms: NotRequired[float]
    timeout_ms: NotRequired[int]
    thread_id: NotRequired[str]
    frames: NotRequired[list[DumpedFrame]]
    input_sizes: NotRequired[list[Annotated[list[Count], at_most(MAX_DIMENSIONS)]]]
    input_dtypes: NotRequired[list[str]]
    output_sizes: NotRequired[list[Annotated[list[Count], at_most(MAX_DIMENSIONS)]]]
    output_dtypes: NotRequired[list[str]]


def _few(entries: list[Any]) -> str:
    return f"has {len(entries)} entries, more than {MOST_ENTRIES}" if len(entries) > MOST_ENTRIES else ""


class Dump(TypedDict):
    version: str
    entries: NotRequired[Annotated[list[Any], _few]]  # not in the JSON text of a rank without calls
    pg_config: NotRequired[dict[str, dict[str, str]]]
