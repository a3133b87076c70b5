"""Where a replayed rank leaves the record, in a replay in which it may: another program, or other peers.

What it receives from then on may have depended on what it no longer sends, so no recorded answer is used after that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from prismdbg.model.moment import Moment
from prismdbg.rank.c10d.call import Call

_OF_THE_ANSWER = frozenset(["out", "synthesized"])


def rests_on(since: Moment | None, moment: Moment, names: Collection[str]) -> bool:
    """Whether a value at `moment`, made of these names, may depend on the answer at `since`: everything after that, and
    the answer itself."""
    if since is None or moment < since:
        return False
    return moment > since or not _OF_THE_ANSWER.isdisjoint(names)


@dataclass(slots=True)
class Departure:
    """`left`: the first call that is not as recorded. `affected`: the first one after it that receives anything: what
    the rank sent up to there stands on recorded answers alone."""

    left: Moment | None = None
    affected: Moment | None = None

    def leave(self, moment: Moment) -> bool:
        """True the first time."""
        first = self.left is None
        if first:
            self.left = moment
        return first

    def assumes(self, moment: Moment, names: Collection[str]) -> bool:
        """Whether a value rests on what peers are assumed to send since the rank left the record."""
        return rests_on(self.left, moment, names)

    def record_holds(self, call: Call, moment: Moment) -> bool:
        """Whether a recorded answer may be given to this call."""
        if self.left is None:
            return True
        if self.affected is None and any(t.numel() or t.is_sparse for t in call.received):
            self.affected = moment
        return False
