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
        where = "`where` shows its stack, " if self.frames else ""
        return f"no next collective was recorded: {where}`continue` waits for one, `quit` ends"
