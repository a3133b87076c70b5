"""A rank that its job hung for, outside of a collective: where it was in the recording, and when a replay says that it
hangs again."""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.model.frame import Frame, place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedHang:
    """`frames`: of its main thread, innermost first, as its stack was taken in production; empty where it was not.

    bound_s: how long the replayed rank is silent, after all that is recorded of it, until it hangs again. grounds: why
    so long, in words.
    """

    rank: int
    bound_s: float
    frames: tuple[Frame, ...] = ()
    grounds: str = ""

    @property
    def place(self) -> str:
        """The program's line; empty where it is not known."""
        return place_of(self.frames)
