"""The memory that a rank held, from the trace of `record --memory`, in plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prismdbg.api.moments import moment_of
from prismdbg.api.tables import table
from prismdbg.capsule.memory_format import device_name
from prismdbg.errors import UsageError
from prismdbg.memory.curve import curve
from prismdbg.memory.grouping import By, grouped
from prismdbg.memory.live import Live, live_at
from prismdbg.memory.peak import peak
from prismdbg.memory.trace import Block, MemoryTrace
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockGroup:
    """Blocks of one origin. `frames`: a stack of theirs, innermost first, if they are grouped by stack."""

    label: str
    size_bytes: int
    blocks: int
    frames: tuple[Frame, ...] = ()


class Blocks:
    """Blocks that are live at one moment, oldest first."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def __len__(self) -> int:
        return len(self._live)

    @property
    def program_bytes(self) -> int:
        """Sum of the program's own blocks. It is a lower bound if `is_lower_bound`."""
        return self._live.program_bytes

    @property
    def backend_bytes(self) -> int:
        """Sum of the blocks of the communication backend."""
        return self._live.backend_bytes

    @property
    def is_lower_bound(self) -> bool:
        """Whether blocks from before the trace may be missing."""
        return self._live.is_least

    def groups(self, by: str = "stack") -> tuple[BlockGroup, ...]:
        """Blocks by where they were allocated, the largest group first. `by`: stack, module, operator, size or age."""
        by = By.OP if by == "operator" else by
        if by not in tuple(By):
            raise UsageError(f"blocks cannot be grouped by {by!r}", hint=f"choose one of {', '.join(By)}")
        return tuple(
            BlockGroup(label=entry.label, size_bytes=entry.size_bytes, blocks=entry.blocks, frames=entry.frames)
            for entry in grouped(self._live, By(by))
        )

    def largest(self, count: int = 10) -> tuple[Block, ...]:
        """The largest blocks, each with its moment and its stack (`block.site.frames`)."""
        return tuple(self._live.largest(count))

    def columns(self) -> dict[str, Sequence[Any]]:
        """One list per field, with one value per block: `to_pandas` without pandas. `freed` is "" for a block that
        lives at the end of the trace; `from_before`: it is older than the trace."""
        blocks = [self._live.trace.allocation(int(row)) for row in self._live.rows]
        return {
            "moment": [str(block.moment) for block in blocks],
            "freed": [str(block.freed or "") for block in blocks],
            "size_bytes": [block.size_bytes for block in blocks],
            "op": [block.site.op for block in blocks],
            "module": [block.site.module for block in blocks],
            "source": [str(block.site.own_frame or "") for block in blocks],
            "is_backend": [block.is_backend for block in blocks],
            "from_before": [block.is_before for block in blocks],
        }

    def to_pandas(self) -> pandas.DataFrame:
        """One row per block. Needs pandas."""
        return table(self.columns())

    def __repr__(self) -> str:
        return f"<{len(self)} blocks, {self.program_bytes} bytes of the program>"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPeak:
    """The first time that the most was live. `cause`: the allocation that made it so; None if that is what was there
    before. `blocks`: what was live then, without the backend's. is_lower_bound: blocks may be missing."""

    moment: Moment
    size_bytes: int
    cause: Block | None
    blocks: Blocks
    is_lower_bound: bool


class Memory:
    """The memory of one device, as a rank used it. `Rank.memory` returns one.

    >>> with prismdbg.open("RUN") as recording:
    ...     memory = recording[0].memory()
    >>> peak = memory.peak()
    >>> print(memory.device, peak.moment, peak.size_bytes)
    cpu 2.1.3 1536
    >>> [(group.label, group.size_bytes) for group in memory.live("2.1").groups("op")]
    [('aten::empty', 512), ('backend', 64)]
    """

    def __init__(self, trace: MemoryTrace) -> None:
        self._trace = trace

    @property
    def device(self) -> str:
        return self._trace.device_name

    @property
    def devices(self) -> tuple[str, ...]:
        """All devices that the trace has blocks of, the largest peak first."""
        return tuple(map(device_name, self._trace.devices))

    def on(self, device: str) -> Memory:
        """The same trace of another device, such as `"cuda:0"`. Raises `UsageError` if it has none."""
        found = next((number for number in self._trace.devices if device_name(number) == device), None)
        if found is None:
            raise UsageError(f"the trace has no memory of {device}", hint=f"choose one of {', '.join(self.devices)}")
        return Memory(self._trace.on(found))

    @property
    def begin(self) -> Moment:
        return self._trace.begin

    @property
    def end(self) -> Moment:
        return self._trace.end

    def peak(self, begin: str | Moment | None = None, end: str | Moment | None = None) -> MemoryPeak | None:
        """The peak of the program's own memory, from `begin` to before `end`; None if nothing happened there."""
        found = peak(self._trace, moment_of(begin), moment_of(end))
        if found is None:
            return None
        return MemoryPeak(
            moment=found.moment,
            size_bytes=found.size_bytes,
            cause=found.allocation,
            blocks=Blocks(found.live),
            is_lower_bound=found.is_least,
        )

    def live(self, moment: str | Moment | None = None) -> Blocks:
        """Blocks that are live at `moment`, before what happens there; at the end of the trace without one."""
        if (at := moment_of(moment)) is not None:
            self._trace.require(at)
        return Blocks(live_at(self._trace, at))

    def columns(self, points: int = 1000) -> dict[str, Sequence[Any]]:
        """The curve of live memory: for each of at most `points` stretches its first moment, and the lowest and highest
        number of bytes of the program's own."""
        drawn = curve(self._trace, points)
        return {
            "moment": [str(drawn.moment(point)) for point in range(len(drawn))],
            "low_bytes": drawn.low_bytes.tolist(),
            "high_bytes": drawn.high_bytes.tolist(),
        }

    def to_pandas(self, points: int = 1000) -> pandas.DataFrame:
        """One row per stretch of the curve. Needs pandas."""
        return table(self.columns(points))

    def __repr__(self) -> str:
        return f"<memory of {self.device}, {self.begin} to {self.end}>"
