"""Packets of a Perfetto trace: tracks, slices, instants, counters and flows, by the messages of the perfetto package.

Names and stacks are interned: each is written once. Of a trace that this writes there is one packet sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import IO, Any

from prismdbg.errors import FacilityError
from prismdbg.model.frame import Frame

_LAST = (1 << 63) - 1  # of a number; a damaged log has others
_LAST_LINE = (1 << 32) - 1
_SEQUENCE = 1
Annotations = Mapping[str, str | int | bool]


@lru_cache(1)
def messages() -> ModuleType:
    """The package's generated classes; `FacilityError` where it is not installed."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError:
        raise FacilityError(
            "the package perfetto is not installed", hint="pip install 'prismdbg[perfetto]', or pip install perfetto"
        ) from None
    module: ModuleType = perfetto_trace_pb2
    return module


def _as_time(time_ns: int) -> int:
    return min(max(time_ns, 0), _LAST)


class Packets:
    """Writes packets into `file` as they are made."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._proto = messages()
        self._interned: dict[tuple[str, object], int] = {}
        self._tracks = 0
        first = self._packet()
        first.sequence_flags = self._proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        first.first_packet_on_sequence = True
        self._write(first)

    def clock(self, wall_ns: int) -> None:
        """All times are nanoseconds since 1970, on the trace's own clock."""
        packet = self._packet()
        for clock in (self._proto.BUILTIN_CLOCK_BOOTTIME, self._proto.BUILTIN_CLOCK_REALTIME):
            packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=_as_time(wall_ns))
        self._write(packet)

    def track(self, name: str, parent: int = 0, *, place: int = 0) -> int:
        """Its number. `place`: among its siblings."""
        packet = self._track(name, parent, place)
        packet.track_descriptor.child_ordering = self._proto.TrackDescriptor.EXPLICIT
        self._write(packet)
        return self._tracks

    def counter(self, name: str, parent: int = 0, *, place: int = 0, unit: str = "") -> int:
        """The number of a counter's track. `unit`: empty for bytes."""
        packet = self._track(name, parent, place)
        described = packet.track_descriptor.counter
        if unit:
            described.unit_name = unit
        else:
            described.unit = self._proto.CounterDescriptor.UNIT_SIZE_BYTES
        self._write(packet)
        return self._tracks

    def _track(self, name: str, parent: int, place: int) -> Any:
        self._tracks += 1
        packet = self._packet()
        track = packet.track_descriptor
        track.uuid, track.name, track.sibling_order_rank = self._tracks, name, place
        if parent:
            track.parent_uuid = parent
        return packet

    def begin(
        self,
        track: int,
        time_ns: int,
        name: str,
        *,
        about: Annotations | None = None,
        frames: Sequence[Frame] = (),
        flows: Sequence[int] = (),
    ) -> None:
        self._event(self._proto.TrackEvent.TYPE_SLICE_BEGIN, track, time_ns, name, about or {}, frames, flows)

    def end(self, track: int, time_ns: int) -> None:
        self._event(self._proto.TrackEvent.TYPE_SLICE_END, track, time_ns)

    def instant(self, track: int, time_ns: int, name: str, about: Annotations) -> None:
        self._event(self._proto.TrackEvent.TYPE_INSTANT, track, time_ns, name, about)

    def count(self, track: int, time_ns: int, value: float) -> None:
        packet = self._packet(time_ns)
        event = packet.track_event
        event.type, event.track_uuid = self._proto.TrackEvent.TYPE_COUNTER, track
        if isinstance(value, int):
            event.counter_value = min(max(value, -_LAST - 1), _LAST)
        else:
            event.double_counter_value = value
        self._write(packet)

    def _event(
        self,
        kind: int,
        track: int,
        time_ns: int,
        name: str = "",
        about: Annotations | None = None,
        frames: Sequence[Frame] = (),
        flows: Sequence[int] = (),
    ) -> None:
        packet = self._packet(time_ns)
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        if name:
            event.name_iid = self._number(packet, "event_names", name, name=name)
        for key, value in (about or {}).items():
            self._annotate(packet, event.debug_annotations.add(), key, value)
        if frames:
            event.callstack_iid = self._stack(packet, tuple(frames))
        event.flow_ids.extend(flows)
        self._write(packet)

    def _annotate(self, packet: Any, annotation: Any, key: str, value: str | int | bool) -> None:
        annotation.name_iid = self._number(packet, "debug_annotation_names", key, name=key)
        if isinstance(value, bool):
            annotation.bool_value = value
        elif isinstance(value, int) and abs(value) <= _LAST:
            annotation.int_value = value
        else:  # a number beyond 64 bits, from a damaged log, as it is
            annotation.string_value_iid = self._text(packet, "debug_annotation_string_values", str(value))

    def _stack(self, packet: Any, frames: tuple[Frame, ...]) -> int:
        if (known := self._interned.get(("callstacks", frames))) is not None:
            return known
        numbers = [self._frame(packet, frame) for frame in reversed(frames)]  # the outermost first
        return self._number(packet, "callstacks", frames, frame_ids=numbers)

    def _frame(self, packet: Any, frame: Frame) -> int:
        function = self._text(packet, "function_names", frame.name)
        source = self._text(packet, "source_paths", frame.filename)
        return self._number(
            packet,
            "frames",
            frame,
            function_name_id=function,
            source_path_iid=source,
            line_number=min(max(frame.line, 0), _LAST_LINE),
        )

    def _text(self, packet: Any, kind: str, text: str) -> int:
        return self._number(packet, kind, text, str=text.encode("utf-8", "replace"))

    def _number(self, packet: Any, kind: str, value: object, **fields: object) -> int:
        """Under which `value` is known; with its first use it is described in `packet`."""
        key = (kind, value)
        if key not in self._interned:
            self._interned[key] = len(self._interned) + 1
            getattr(packet.interned_data, kind).add(iid=self._interned[key], **fields)
        return self._interned[key]

    def _packet(self, time_ns: int | None = None) -> Any:
        packet = self._proto.TracePacket()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = self._proto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        if time_ns is not None:
            packet.timestamp = _as_time(time_ns)
        return packet

    def _write(self, packet: Any) -> None:
        trace = self._proto.Trace()
        trace.packet.append(packet)
        self._file.write(trace.SerializeToString())
