"""When the peers of one rank are there: an iteration of that rank, taken from a simulated timeline. JSON on disk.

Times are nanoseconds since the rank began the iteration. A call ends at max(own arrival, `others_ns`) + `transfer_ns`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from prismdbg.errors import UsageError
from prismdbg.model.private_file import private

FORMAT = 4
MAIN = 0
MILLION = 10**6
NO_STREAM = -1


class RowKind(StrEnum):
    COMPUTE = "compute"
    COLLECTIVE = "collective"
    SEND = "send"
    RECV = "recv"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`stream`: where it runs, `NO_STREAM` for a transfer that queues behind nothing. target: of a wait.

    issuer, blocking: of a call; whether the issuer's stream stands until it is done. channel: of a call, by number.
    late_ns: how long the last other member comes after this rank could begin, as simulated. others_gain_ns: how much
    later it would be there if all ranks computed twice as long, as a small change says.
    """

    kind: RowKind
    stream: int = MAIN
    issuer: int = MAIN
    blocking: bool = False
    duration_ns: int = 0
    target: int = -1
    op: str = ""
    channel: int = -1
    size_bytes: int = 0
    others_ns: int = 0
    others_gain_ns: int = 0
    late_ns: int = 0
    transfer_ns: int = 0
    line: str = ""

    @property
    def is_call(self) -> bool:
        return self.kind not in (RowKind.COMPUTE, RowKind.WAIT)

    def others_at_ns(self, drift_ppm: int) -> int:
        """When the last other member is there if all ranks compute so much longer."""
        return max(self.others_ns + self.others_gain_ns * (drift_ppm - MILLION) // MILLION, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A channel: a group by its members, or a peer. `digest`: of the group's ranks; `peer`: -1 for a group."""

    name: str
    members: int = 0
    digest: str = ""
    peer: int = -1
    tag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`rows`: in the order of the program. iteration_ns: when the main stream is done.

    step: which it was made from. steps: these are like it; no other is paced.
    families: what calls may be named, the longest name first. contention_ppm: of a core, what a transfer under way
    takes from the rank's computation. slower_ppm: by this factor, in millionths, it computes longer than it does here,
    for its node's processors are shared.
    """

    rank: int
    step: int
    steps: tuple[int, ...]
    iteration_ns: int
    streams: tuple[str, ...]
    channels: tuple[Lane, ...]
    rows: tuple[Row, ...]
    families: tuple[str, ...] = ()
    contention_ppm: int = 0
    slower_ppm: int = MILLION

    @property
    def computed_ns(self) -> int:
        """On the main stream."""
        return sum(row.duration_ns for row in self.rows if row.kind is RowKind.COMPUTE and row.stream == MAIN)

    def family(self, label: str) -> str:
        """`all_gather` of `all_gather_into_tensor`."""
        found = next((name for name in self.families if label.startswith(name)), label)
        return "barrier" if label.endswith("barrier") else found

    def say(self, number: int) -> str:
        row = self.rows[number]
        toward = {RowKind.SEND: "to", RowKind.RECV: "from"}.get(row.kind, "on")
        at = f" at {row.line}" if row.line else ""
        return f"{row.op} of {row.size_bytes:,} bytes {toward} {self.channels[row.channel].name}{at}"

    def save(self, path: Path) -> None:
        """Rows as lists of values: a job has thousands."""
        names = [field.name for field in fields(self) if field.name not in ("channels", "rows")]
        data: dict[str, Any] = {"format": FORMAT, **{name: getattr(self, name) for name in names}}
        data["channels"] = [asdict(channel) for channel in self.channels]
        data["columns"] = [field.name for field in fields(Row)]
        data["rows"] = [astuple(row) for row in self.rows]
        with open(path, "w", opener=private) as file:
            file.write(json.dumps(data))

    @classmethod
    def load(cls, path: Path) -> Schedule:
        """`UsageError` for a file that is no schedule."""
        try:
            data = json.loads(path.read_text())
            if data.pop("format") != FORMAT:
                raise ValueError("unsupported format")
            names = data.pop("columns")
            rows = tuple(_row(dict(zip(names, values, strict=True))) for values in data.pop("rows"))
            channels = tuple(Lane(**channel) for channel in data.pop("channels"))
            lists: dict[str, Any] = {name: tuple(data.pop(name)) for name in ("steps", "streams", "families")}
            return cls(rows=rows, channels=channels, **lists, **data)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"{path} is not a schedule: {error}", hint="give a schedule that `prismdbg emulate --pace` wrote"
            ) from error


def digest(ranks: Iterable[int]) -> str:
    """Of the members of a group, whatever their order."""
    text = ",".join(map(str, sorted(ranks)))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _row(values: dict[str, Any]) -> Row:
    return Row(**{**values, "kind": RowKind(values["kind"])})
