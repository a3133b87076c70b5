"""A place in a replay that one can return to at once: a checkpoint of the rank was taken there."""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.model.moment import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Number 0 is the capsule's own origin, which takes no room here.

    cost_s: what it took to make; of number 0, what the first start took. side: which place of that moment
    (`Stopped.side`); that of number 0 is not known.
    """

    number: int
    moment: Moment
    size_bytes: int
    cost_s: float
    side: str = ""

    @property
    def position(self) -> Moment:
        """As `Stopped.position` has it. What happens after a collective, before its first operator, is not at the
        collective."""
        at_collective = self.side in ("", "asked", "answered")
        return self.moment if at_collective or self.moment.op else self.moment.behind

    def is_at(self, position: Moment) -> bool:
        """Whether it is the very place. Behind a collective that is an exception only, not what happens before the
        first operator."""
        return self.position == position and (not position.is_behind or self.side == "raised")
