"""A recording as a trace that Perfetto opens: a track for each rank, with its steps, collectives, waits and memory, and
counters of telemetry.

The calls of several ranks that are one collective are joined by a flow, in the order in which the ranks came to it.
What did not end stays open. Times are nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from typing import IO

from prismdbg.capsule.log.events import Note, RankLog, StepMark
from prismdbg.capsule.log.format import StepSource
from prismdbg.capsule.secrets.masking import (
    redact_text,
)
from prismdbg.exporters.perfetto_packets import Annotations, Packets
from prismdbg.exporters.perfetto_telemetry import TelemetryTracks
from prismdbg.exporters.perfetto_waits import Arrivals
from prismdbg.jobs.capture.secret_rules import find
from prismdbg.memory.curve import curve
from prismdbg.memory.trace import MemoryTrace
from prismdbg.model import dtypes
from prismdbg.model.collective import Collective, TensorMeta
from prismdbg.model.meanwhile import one_by_one
from prismdbg.model.ops import OPS, Movement
from prismdbg.telemetry.series import Telemetry

MOST_COUNTS = 20_000  # points of a rank's memory
_TENSORS_SHOWN = 8
_TEXT_SHOWN = 2000
_NOTES = {
    "incident": "exception",
    "exit": "exit",
    "lost": "recording ended",
    "parked": "parked",
    "released": "released",
}
_NEVER = 1 << 63


@dataclass(slots=True, kw_only=True)
class Written:
    """`earlier`: calls that were not written, for `last`. `counters`: ranks with their memory. `sensors`: of telemetry
    those that have readings since the first call."""

    ranks: int = 0
    calls: int = 0
    earlier: int = 0
    counters: int = 0
    sensors: int = 0


def write_trace(
    logs: Mapping[int, RankLog],
    traces: Mapping[int, MemoryTrace],
    file: IO[bytes],
    *,
    last: int,
    clocks_agree: bool = True,
    telemetry: Mapping[str, Telemetry] = {},
    nodes: Mapping[int, str] = {},
) -> Written:
    """With the `last` calls of each rank at most. `traces`: of the ranks' memory, as far as there are any.

    clocks_agree: times of two ranks can be compared, so that it can be said for whom a rank waited. telemetry: by
    node; nodes: of the ranks, where there are several.
    """
    packets, written = Packets(file), Written()
    kept = {rank: _last(log, last) for rank, log in sorted(logs.items())}
    begins = [calls[0].time_created_ns + logs[rank].wall_offset_ns for rank, calls in kept.items() if calls]
    since_ns = min(begins, default=0)
    packets.clock(since_ns)
    parents: dict[int, int] = {}
    arrivals = Arrivals(logs, kept) if clocks_agree else None
    for rank, calls in one_by_one(list(kept.items()), "writing the tracks of ranks"):
        log = logs[rank]
        parent = parents[rank] = packets.track(f"rank {rank}", place=rank)
        _Lanes(packets, rank, log, parent, has_flows=len(logs) > 1, arrivals=arrivals).write(calls)
        _write_steps(packets, log, parent, calls)
        _write_notes(packets, log, parent)
        if rank in traces:
            _write_memory(packets, traces[rank], parent, since_ns=since_ns)
        written.ranks += 1
        written.calls += len(calls)
        written.earlier += len(log.collectives) - len(calls)
        written.counters += rank in traces
    tracks = TelemetryTracks(packets, parents)
    for node, found in telemetry.items():
        offsets = [log.wall_offset_ns for rank, log in logs.items() if nodes.get(rank, "") == node]
        offset_ns = offsets[0] if offsets else found.wall_offset_ns  # as the node's ranks are shown, by one clock
        written.sensors += tracks.write(found, offset_ns=offset_ns, since_ns=since_ns, node=node)
    return written


def _last(log: RankLog, last: int) -> list[Collective]:
    return [log.collectives[row] for row in range(max(len(log.collectives) - last, 0), len(log.collectives))]


@dataclass(slots=True, kw_only=True)
class _Span:
    name: str
    begin_ns: int
    end_ns: int | None
    call: Collective


class _Lanes:
    """The calls of one rank, by group: those that overlap are in tracks of one name, which Perfetto shows as one."""

    def __init__(
        self, packets: Packets, rank: int, log: RankLog, parent: int, *, has_flows: bool, arrivals: Arrivals | None
    ) -> None:
        """`rank`: whose log it is; a damaged one may name another."""
        self._packets = packets
        self._rank = rank
        self._log = log
        self._parent = parent
        self._has_flows = has_flows
        self._arrivals = arrivals

    def write(self, calls: Sequence[Collective]) -> None:
        by_group: dict[str, list[_Span]] = {}
        for call in calls:
            span = _Span(name=call.name, begin_ns=call.time_created_ns, end_ns=call.time_completed_ns, call=call)
            by_group.setdefault(call.group, []).append(span)
        for place, (group, spans) in enumerate(by_group.items()):
            self._write(self._title(group), 10 + place, spans)
        of_threads = [
            _Span(name=f"wait in {c.name}", begin_ns=c.time_waited_ns, end_ns=c.time_completed_ns, call=c)
            for c in calls
            if c.time_waited_ns is not None
        ]
        self._write("waits of threads", 6, of_threads, is_wait=True)
        if self._arrivals is not None:
            waits = [(call, self._arrivals.wait(self._rank, call)) for call in calls]
            spans = [
                _Span(name=w.text, begin_ns=w.begin_ns, end_ns=w.end_ns, call=c) for c, w in waits if w is not None
            ]
            self._write("waits for ranks", 5, spans, is_wait=True)

    def _title(self, name: str) -> str:
        if (group := self._log.groups.get(name)) is None:
            return f"group {name}"
        return f"{group.title} (ranks {', '.join(map(str, group.ranks[:8]))}{', ...' if group.size > 8 else ''})"

    def _write(self, title: str, place: int, spans: Sequence[_Span], *, is_wait: bool = False) -> None:
        lanes: list[tuple[int, int]] = []  # a track, and when its last span ended
        offset = self._log.wall_offset_ns
        for span in sorted(spans, key=lambda span: span.begin_ns):
            end_ns = _NEVER if span.end_ns is None else max(span.end_ns, span.begin_ns)
            at = next((at for at, (_, ended) in enumerate(lanes) if ended <= span.begin_ns), len(lanes))
            if at == len(lanes):
                lanes.append((self._packets.track(title, self._parent, place=place), 0))
            track = lanes[at][0]
            lanes[at] = track, end_ns
            call = span.call
            if is_wait:
                self._packets.begin(track, span.begin_ns + offset, span.name, about={"moment": str(call.moment)})
            else:
                flows = [_flow(self._log, call)] if self._has_flows and call.group in self._log.groups else []
                about = _about(call)
                self._packets.begin(
                    track, span.begin_ns + offset, span.name, about=about, frames=call.frames, flows=flows
                )
            if end_ns != _NEVER:
                self._packets.end(track, end_ns + offset)


def _flow(log: RankLog, call: Collective) -> int:
    """The same for all calls that are one collective, or one message."""
    identity, group = call.identity, log.groups[call.group]
    key: tuple[object, ...] = (group.name, group.ranks, identity.seq)
    if call.is_p2p:
        here = group.ranks.index(log.rank) if log.rank in group.ranks else -1
        is_sender = call.op in OPS and OPS[call.op].movement is Movement.SEND
        ends = (here, identity.peer) if is_sender else (identity.peer, here)
        key = (*key, *ends, identity.tag)
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest(), "little")


def _about(call: Collective) -> Annotations:
    about: dict[str, str | int | bool] = {
        "moment": str(call.moment),
        "group": call.group,
        "sequence": call.identity.seq,
        "state": str(call.state),
        "inputs": _tensors(call.inputs),
        "outputs": _tensors(call.outputs),
        "bytes": sum(map(_size_bytes, call.outputs or call.inputs)),
    }
    if call.root >= 0:
        about["peer" if call.is_p2p else "root"] = call.root
    about |= {name: True for name in ("sent_nonfinite", "received_nonfinite", "synthesized") if getattr(call, name)}
    if call.place:
        about["source"] = call.place
    if call.failure is not None:
        text = redact_text(f"{call.failure.type}: {call.failure.text}", find=find)  # a log has it as it was raised
        about["failure"] = text[:_TEXT_SHOWN]
    return about


def _tensors(tensors: tuple[TensorMeta, ...]) -> str:
    more = f", {len(tensors) - _TENSORS_SHOWN} more" if len(tensors) > _TENSORS_SHOWN else ""
    return ", ".join(map(str, tensors[:_TENSORS_SHOWN])) + more


def _size_bytes(tensor: TensorMeta) -> int:
    size = dtypes.ITEM_BYTES.get(tensor.dtype, 1)
    for length in tensor.shape:
        size *= length
    return size


def _write_steps(packets: Packets, log: RankLog, parent: int, calls: Sequence[Collective]) -> None:
    """Those in which the calls are."""
    if not calls:
        return
    first = calls[0].moment.step
    marks = [mark for mark in log.steps if mark.step >= first]
    track = packets.track("steps", parent, place=1)
    for mark, following in zip_longest(marks, marks[1:]):
        packets.begin(track, mark.time_ns + log.wall_offset_ns, _titled(mark, following))
        if following is not None:
            packets.end(track, following.time_ns + log.wall_offset_ns)


def _titled(mark: StepMark, following: StepMark | None) -> str:
    was_skipped = following is not None and following.source is StepSource.SKIPPED_BY_SCALER
    return f"step {mark.step}{' (skipped by a gradient scaler)' if was_skipped else ''}"


def _write_notes(packets: Packets, log: RankLog, parent: int) -> None:
    notes = [note for note in log.notes if note.kind in _NOTES]
    if not notes:
        return
    track = packets.track("events", parent, place=0)
    for note in notes:
        packets.instant(track, note.time_ns + log.wall_offset_ns, _NOTES[note.kind], _told(note))


def _told(note: Note) -> Annotations:
    return {key: str(value)[:_TEXT_SHOWN] for key, value in note.data.items() if value is not None}


def _write_memory(packets: Packets, trace: MemoryTrace, parent: int, *, since_ns: int) -> None:
    """What the program and the backend hold on each device; of long traces the highest of each stretch."""
    for device in sorted(trace.devices):
        _write_device(packets, trace.on(device), parent, since_ns=since_ns)


def _write_device(packets: Packets, trace: MemoryTrace, parent: int, *, since_ns: int) -> None:
    where = f", {trace.device_name}" if trace.is_of_several else ""
    for title, with_backend in (("memory of the program", False), ("memory with the backend's", True)):
        if with_backend and not trace.is_backend.any():
            continue
        drawn = curve(trace, MOST_COUNTS, with_backend=with_backend)
        track = packets.counter(title + where, parent, place=2 + with_backend)
        for row, high in zip(drawn.rows.tolist(), drawn.high_bytes.tolist(), strict=True):
            time_ns = int(trace.time_ns[row]) + trace.wall_offset_ns
            if time_ns >= since_ns:
                packets.count(track, time_ns, high)
