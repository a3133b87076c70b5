"""Writes the entries of one class, one call an entry. Each call gives the entry's number, for `wait`."""

from __future__ import annotations

from typing import TypedDict, Unpack

import numpy as np

from prismdbg.errors import CapsuleError, UsageError
from prismdbg.simulate.graph.entries import (
    COMPUTE_STREAM,
    DTYPES,
    FREE,
    MODELLED_NS,
    PROVENANCES,
    Entries,
    Kind,
    Provenance,
)

FREE_NAME = "free"


class Communication(TypedDict, total=False):
    """What may be said of any. stream, issuer: names; `free` is no stream of its own. duration_ns: if it is known.

    detail: what all members must give alike besides operation and size. splits: of an all-to-all (`splits_text`).
    """

    stream: str
    issuer: str
    duration_ns: int
    label: str
    line: str
    detail: str
    splits: str
    provenance: Provenance


class EntryWriter:
    """`line`: where in the program. Streams and channels need no declaration."""

    def __init__(self) -> None:
        self._rows: dict[str, list[int]] = {name: [] for name in DTYPES}
        self._streams: dict[str, int] = {"compute": COMPUTE_STREAM}
        self._channels: dict[str, int] = {}
        self._texts: dict[str, int] = {"": 0}

    def __len__(self) -> int:
        return len(self._rows["kind"])

    def compute(
        self,
        duration_ns: int,
        label: str = "",
        *,
        stream: str = "compute",
        line: str = "",
        provenance: Provenance = Provenance.ASSUMED,
    ) -> int:
        if duration_ns < 0 or stream == FREE_NAME:
            raise UsageError(
                f"a computation of {duration_ns} ns on stream {stream}", hint="give it a time and a stream of its own"
            )
        return self._add(
            Kind.COMPUTE, stream=stream, label=label, line=line, provenance=provenance, duration_ns=duration_ns
        )

    def collective(
        self, op: str, channel: str, size_bytes: int, *, blocking: bool = True, **more: Unpack[Communication]
    ) -> int:
        """Runs on the stream named like its channel unless said otherwise, as a communicator's own."""
        more.setdefault("stream", channel)
        return self._communicate(Kind.COLLECTIVE, op, channel, size_bytes, blocking, more)

    def send(self, channel: str, size_bytes: int, *, blocking: bool = False, **more: Unpack[Communication]) -> int:
        return self._communicate(Kind.SEND, "send", channel, size_bytes, blocking, more)

    def recv(self, channel: str, size_bytes: int, *, blocking: bool = True, **more: Unpack[Communication]) -> int:
        return self._communicate(Kind.RECV, "recv", channel, size_bytes, blocking, more)

    def wait(self, target: int, *, stream: str = "compute", line: str = "") -> int:
        if stream == FREE_NAME or not 0 <= target < len(self) or self._rows["kind"][target] in (Kind.WAIT, Kind.MEMORY):
            raise UsageError(f"a wait for entry {target}, which does not run", hint="wait for an earlier one that runs")
        return self._add(Kind.WAIT, stream=stream, line=line, target=target)

    def memory(self, size_bytes: int, label: str = "", *, provenance: Provenance = Provenance.ASSUMED) -> int:
        """Allocated, or freed if negative."""
        return self._add(Kind.MEMORY, label=label, provenance=provenance, size_bytes=size_bytes)

    def done(self) -> Entries:
        try:
            columns = {name: np.array(self._rows[name], dtype=dtype) for name, dtype in DTYPES.items()}
        except OverflowError as error:  # a damaged log's sizes
            raise CapsuleError(
                f"a size or a time does not fit 64 bits: {error}", hint="record or fetch it again: the log is damaged"
            ) from error
        return Entries(
            **columns, streams=tuple(self._streams), channels=tuple(self._channels), texts=tuple(self._texts)
        )

    def _communicate(
        self, kind: Kind, op: str, channel: str, size_bytes: int, blocking: bool, more: Communication
    ) -> int:
        stream, issuer = more.get("stream", FREE_NAME), more.get("issuer", "compute")
        duration_ns = more.get("duration_ns", MODELLED_NS)
        if size_bytes < 0 or duration_ns < MODELLED_NS:
            raise UsageError(
                f"{op} of {size_bytes} bytes in {duration_ns} ns", hint="give numbers that are not negative"
            )
        if issuer == FREE_NAME or (stream == "compute" != issuer):
            raise UsageError(f"{op} on stream {stream} issued by {issuer}", hint="let the compute stream issue it")
        return self._add(
            kind,
            op=op,
            channel=channel,
            size_bytes=size_bytes,
            stream=stream,
            issuer=issuer,
            blocking=blocking,
            duration_ns=duration_ns,
            label=more.get("label", ""),
            line=more.get("line", ""),
            detail=more.get("detail", ""),
            splits=more.get("splits", ""),
            provenance=more.get("provenance", Provenance.MODELLED),
        )

    def _add(
        self,
        kind: Kind,
        *,
        stream: str = "compute",
        issuer: str = "compute",
        blocking: bool = False,
        provenance: Provenance = Provenance.ASSUMED,
        channel: str | None = None,
        op: str = "",
        label: str = "",
        line: str = "",
        detail: str = "",
        splits: str = "",
        target: int = -1,
        size_bytes: int = 0,
        duration_ns: int = 0,
    ) -> int:
        row = {
            "kind": int(kind),
            "stream": self._stream(stream),
            "issuer": self._stream(issuer),
            "blocking": int(blocking),
            "provenance": PROVENANCES.index(provenance),
            "channel": -1 if channel is None else self._channels.setdefault(channel, len(self._channels)),
            "op": self._text(op),
            "label": self._text(label),
            "line": self._text(line),
            "detail": self._text(detail),
            "splits": self._text(splits),
            "target": target,
            "size_bytes": size_bytes,
            "duration_ns": duration_ns,
        }
        for name, value in row.items():
            self._rows[name].append(value)
        return len(self) - 1

    def _stream(self, name: str) -> int:
        number = FREE if name == FREE_NAME else self._streams.setdefault(name, len(self._streams))
        if number == FREE and name != FREE_NAME:
            raise UsageError(f"stream {name!r} is one too many", hint=f"use at most {FREE} streams in a class")
        return number

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))
