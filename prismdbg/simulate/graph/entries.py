"""What one class of ranks does, as columns of numbers: computation, communication, waiting, memory. In program order.

Streams run beside each other, each in its own order. Communication starts when the stream that issues it has come
there and its own stream is free; `WAIT` makes a stream wait for an earlier entry. Host time is not modelled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

from prismdbg.simulate.graph.mesh import Ints

COMPUTE_STREAM = 0
FREE = 255  # no stream of its own: it waits for nothing but its issue and its members
OBJECTS = "objects"  # the end of a detail: an emulated rank does not know the size of its peers' objects
_SPLITS = re.compile(r"([0-9]{1,19}(,[0-9]{1,19})*)>([0-9]{1,19}(,[0-9]{1,19})*)")
MODELLED_NS = -1  # the cluster model says how long
HELD_AT_LEAST = "held before the step, as far as known"  # a label of memory: a captured rank held more


def splits_text(sent: Sequence[int], received: Sequence[int]) -> str:
    """`8,24>16,16`: 8 bytes to the first member and 24 to the second, 16 from each."""
    return ">".join(",".join(map(str, sizes)) for sizes in (sent, received)) if sent or received else ""


def splits_of(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bytes to and from each member; nothing where the text is empty."""
    sent, _, received = text.partition(">")
    return _sizes(sent), _sizes(received)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def is_splits(text: str) -> bool:
    return not text or _SPLITS.fullmatch(text) is not None


class Kind(IntEnum):
    COMPUTE = 0
    COLLECTIVE = 1
    SEND = 2
    RECV = 3
    WAIT = 4
    MEMORY = 5


class Provenance(StrEnum):
    """Where a duration or a size comes from, the most trustworthy first."""

    REAL = "real"  # ran here, now
    RECORDED = "recorded"  # taken from a recorded run
    REPLAYED = "replayed"  # a share of a recorded time, as a replay of it took its parts
    MODELLED = "modelled"  # from a formula with measured parameters
    ASSUMED = "assumed"  # from a formula with parameters nobody measured


PROVENANCES = tuple(Provenance)
Bytes8 = NDArray[np.uint8]
DTYPES: dict[str, type[np.generic]] = {
    "kind": np.uint8,
    "stream": np.uint8,
    "issuer": np.uint8,
    "blocking": np.uint8,
    "provenance": np.uint8,
    "channel": np.int16,
    "op": np.int32,
    "label": np.int32,
    "line": np.int32,
    "detail": np.int32,
    "splits": np.int32,
    "target": np.int32,
    "size_bytes": np.int64,
    "duration_ns": np.int64,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entries:
    """One row an entry. `op`, `label`, `line`, `detail`, `splits` are places in `texts`, `channel` in `channels`.

    stream: where it runs. issuer, blocking: communication only; whether its issuer waits for it at once.
    detail: of a collective, what else all members must give alike, as `float32, SUM`; empty where it is not known.
    splits: of an all-to-all, bytes to and from each member (`splits_text`); empty where they are not known.
    target: the entry a WAIT is for. size_bytes: of a message, or of memory (negative: freed).
    duration_ns: of a computation, or of a transfer if it is known, else `MODELLED_NS`.
    """

    kind: Bytes8
    stream: Bytes8
    issuer: Bytes8
    blocking: Bytes8
    provenance: Bytes8
    channel: NDArray[np.int16]
    op: NDArray[np.int32]
    label: NDArray[np.int32]
    line: NDArray[np.int32]
    detail: NDArray[np.int32]
    splits: NDArray[np.int32]
    target: NDArray[np.int32]
    size_bytes: Ints
    duration_ns: Ints
    streams: tuple[str, ...]
    channels: tuple[str, ...]
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def stored_bytes(self) -> int:
        tables = sum(len(text) + 8 for table in (self.streams, self.channels, self.texts) for text in table)
        return tables + sum(int(getattr(self, name).nbytes) for name in DTYPES)

    @property
    def communicates(self) -> NDArray[np.bool_]:
        return (self.kind >= Kind.COLLECTIVE) & (self.kind <= Kind.RECV)

    def say(self, entry: int, *, in_detail: bool = False) -> str:
        """`all_reduce of 4,096 bytes on tp at train.py:12`, in detail `all_reduce of 4,096 bytes (float32, SUM) ..`."""
        kind = Kind(int(self.kind[entry]))
        line = self.texts[self.line[entry]]
        at = f" at {line}" if line else ""
        if not self.communicates[entry]:
            return f"{kind.name.lower()} {self.texts[self.label[entry]]}".rstrip() + at
        toward = {Kind.SEND: "to", Kind.RECV: "from"}.get(kind, "on")
        channel, detail = self.channels[self.channel[entry]], self.texts[self.detail[entry]]
        more = f" ({detail})" if in_detail and detail else ""
        return f"{self.texts[self.op[entry]]} of {int(self.size_bytes[entry]):,} bytes{more} {toward} {channel}{at}"

    def peak_bytes(self) -> int:
        """The largest sum of memory events, in program order."""
        moved = np.where(self.kind == Kind.MEMORY, self.size_bytes, 0)
        return max(int(np.cumsum(moved).max(initial=0)), 0)

    @property
    def holds_more(self) -> bool:
        """Not all that it held before the step is known: the peak is the least that there was."""
        return HELD_AT_LEAST in self.texts


assert {field.name for field in fields(Entries)} == {*DTYPES, "streams", "channels", "texts"}
