"""Going back, planned: from which checkpoint, how far forward, and whether stops are noted on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prismdbg.model.moment import Moment
from prismdbg.session.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """Return to `checkpoint`, run to `until` (None: stay). `note`: stops do not stop, their hits are noted."""

    checkpoint: int
    until: Moment | None
    note: bool = False


def nearest(checkpoints: Sequence[Checkpoint], moment: Moment) -> Checkpoint:
    """The latest one at or before the moment; the origin where none is. The origin's own place shows nothing of its
    moment: it is taken only where nothing else lies at or before it."""
    return max((c for c in checkpoints if c.number == 0 or c.position <= moment), key=_order)


def way_to(checkpoints: Sequence[Checkpoint], moment: Moment) -> Leg:
    """To a moment, from a checkpoint at or before it."""
    start = nearest(checkpoints, moment)
    there = start.number != 0 and start.is_at(moment)
    return Leg(checkpoint=start.number, until=None if there else moment)


def windows(checkpoints: Sequence[Checkpoint], here: Moment, first: Moment | None = None) -> list[Leg]:
    """The runs that look for something before `here`, the latest first: each from a checkpoint to the next's moment.

    What happens at a checkpoint's own moment belongs to the window that ends there. `first`: nothing earlier matters.
    """
    earlier = sorted((c for c in checkpoints if c.number == 0 or c.position < here), key=_order)
    ends = [c.position for c in earlier[1:]] + [here]
    legs = [Leg(checkpoint=c.number, until=end, note=True) for c, end in zip(earlier, ends, strict=True)]
    legs.reverse()
    if first is None:
        return legs
    return [leg for leg in legs if leg.until is not None and leg.until >= first]


def to_drop(
    checkpoints: Sequence[Checkpoint], at_s: dict[int, float], keep: frozenset[int], most: int, most_bytes: int
) -> int | None:
    """The checkpoint that is missed least where there are too many or they take too much: the one between the closest
    neighbours in running time. None where nothing is to be dropped. `keep`: those that a person asked for."""
    kept = sorted(checkpoints, key=_order)
    if len(kept) - 1 <= most and sum(c.size_bytes for c in kept) <= most_bytes:
        return None
    free = [(before, c, after) for before, c, after in zip(kept, kept[1:], [*kept[2:], None], strict=False)]
    candidates = [(b, c, a) for b, c, a in free if c.number not in keep and a is not None]
    if not candidates:
        return None
    _, dropped, _ = min(candidates, key=lambda t: at_s.get(t[2].number, 0.0) - at_s.get(t[0].number, 0.0))
    return dropped.number


def _order(checkpoint: Checkpoint) -> tuple[bool, Moment, int]:
    """The origin is the first, whatever moment it carries."""
    return checkpoint.number != 0, checkpoint.position, checkpoint.number
