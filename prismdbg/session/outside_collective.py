"""A rank that was captured at no collective, and what a debugger can say of it before it comes to one."""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.model.frame import Frame, place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideCollective:
    """`frames`: of its main thread, innermost first, as its stack was taken in production; empty where it was not."""

    rank: int
    frames: tuple[Frame, ...] = ()

    @property
    def text(self) -> str:
        if not self.frames:
            return f"rank {self.rank} was captured outside a collective; its stack was not recorded"
        return f"rank {self.rank} was captured outside a collective, at {place_of(self.frames)}"

    @property
    def hint(self) -> str:
        where = "`where` to see its stack, " if self.frames else ""
        return f"type {where}`continue` to wait for a further collective (none was recorded), or `quit` to end"
