"""What the supervisors of other nodes say of ranks that this one does not see: who computes, and who was held.

They are asked only once somebody here has waited for as long as a hang takes, and the more nodes there are, the less
often: of N supervisors that wait each reads N heartbeats every N / 20 s.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from prismdbg.diagnosis.hang import NS_PER_S
from prismdbg.errors import CapsuleError
from prismdbg.jobs.record.hangs import Delays
from prismdbg.jobs.record.nodes.heartbeat import BEAT_S
from prismdbg.jobs.record.nodes.known_nodes import LISTED_S, KnownNodes
from prismdbg.jobs.storage.job_nodes import SILENT_S, NodeFolder, last_beat

_SILENT_NS = int(SILENT_S * NS_PER_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """A heartbeat, and when it was seen first, by CLOCK_MONOTONIC here."""

    number: int
    first_ns: int
    delays: Delays


class DelaysElsewhere:
    """`own`: the node of whoever asks."""

    def __init__(self, own: str, nodes: KnownNodes) -> None:
        self._own = own
        self._nodes = nodes
        self._heard: dict[str, _Heard] = {}
        self._read_ns: int | None = None

    def look(self) -> Delays:
        now_ns, nodes = time.monotonic_ns(), self._nodes.lately()
        if self._read_ns is None or now_ns - self._read_ns >= max(BEAT_S, LISTED_S * len(nodes)) * NS_PER_S:
            self._read_ns = now_ns
            for node in nodes:
                if node.name != self._own:
                    self._read(node, now_ns)
        heard = [one.delays for one in self._heard.values()]
        return Delays(
            busy=frozenset[int]().union(*(one.busy for one in heard)),
            held=tuple(span for one in heard for span in one.held),
        )

    def _read(self, node: NodeFolder, now_ns: int) -> None:
        """What a supervisor said last counts until it has been silent for too long."""
        known = self._heard.get(node.name)
        with suppress(CapsuleError, OSError):  # what it said before still counts
            beat = last_beat(node)
            if known is None or known.number != beat.get("beat", 0):
                known = _Heard(number=beat.get("beat", 0), first_ns=now_ns, delays=_delays(beat, now_ns))
        if known is not None:
            is_silent = now_ns - known.first_ns > _SILENT_NS
            self._heard[node.name] = known if not is_silent else _without_busy(known)


def _without_busy(known: _Heard) -> _Heard:
    return _Heard(number=known.number, first_ns=known.first_ns, delays=Delays(held=known.delays.held))


def _delays(beat: Mapping[str, Any], now_ns: int) -> Delays:
    """By our clock. When they were held is how long ago that was: clocks of nodes differ."""
    held = beat.get("held_s", ())
    return Delays(
        busy=frozenset(beat.get("busy", ())),
        held=tuple((now_ns - _ns(span[0]), now_ns - _ns(span[1])) for span in held if len(span) == 2),
    )


def _ns(seconds: float) -> int:
    return int(seconds * NS_PER_S)
