"""The places one has looked at, in order, with a cursor for `back` and `forward`."""

from __future__ import annotations

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment

MAX_VISITS = 1000


class Visits:
    """By position (`Stopped.position`). Going somewhere else from a place in the middle drops what lay ahead, as in a
    browser."""

    def __init__(self) -> None:
        self._moments: list[Moment] = []
        self._at = -1

    @property
    def moments(self) -> tuple[Moment, ...]:
        return tuple(self._moments)

    @property
    def at(self) -> int:
        return self._at

    @property
    def before(self) -> Moment | None:
        """Where `back` leads; None where it leads nowhere."""
        return self._moments[self._at - 1] if self._at > 0 else None

    def arrive(self, moment: Moment) -> None:
        if self._moments and self._moments[self._at] == moment:
            return
        del self._moments[self._at + 1 :]
        self._moments.append(moment)
        del self._moments[:-MAX_VISITS]
        self._at = len(self._moments) - 1

    def target(self, by: int) -> Moment:
        """Where `back` (negative) or `forward` leads."""
        place = self._at + by
        if not 0 <= place < len(self._moments):
            raise UsageError(
                "no visited location further " + ("back" if by < 0 else "forward"),
                hint="type `where` to see the current location",
            )
        return self._moments[place]

    def put_back(self, moments: tuple[Moment, ...], at: int) -> None:
        """After going through what was visited: the list stays as it was, the cursor is there."""
        self._moments, self._at = list(moments), at
