"""Images of the rank along its way: when the next one is due, which are kept, why none can be taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from prismdbg.errors import FacilityError
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentClient
from prismdbg.runtime.rank_folder import RankFolder
from prismdbg.session import notices
from prismdbg.session.checkpoint import Checkpoint
from prismdbg.session.notices import Notice
from prismdbg.session.reverse import to_drop

COST_SHARE = 3  # running time between checkpoints is at least so many times what one costs

Tell = Callable[[Notice], object]


class Travel(Protocol):
    """The way back, carried out by `debugger.time_travel`. `client` is another one after each return."""

    @property
    def client(self) -> AgentClient: ...

    @property
    def own(self) -> RankFolder: ...

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]: ...

    def save(self, moment: Moment, number: int | None = None, side: str = "") -> Checkpoint: ...

    def stands_first_at(self, moment: Moment) -> None: ...

    def keep_origin(self) -> None: ...

    def return_to(self, number: int) -> None: ...

    def forget(self, number: int) -> None: ...


class CheckpointKeeper:
    """`most`, `most_bytes`: of checkpoints kept; those that a person asked for stay. Its clock runs while the rank
    does, and goes back with it."""

    def __init__(
        self, travel: Travel, tell: Tell, *, spacing_s: float, most: int, most_bytes: int, wanted: bool
    ) -> None:
        self._travel = travel
        self._tell = tell
        self._spacing_s = spacing_s
        self._most, self._most_bytes = most, most_bytes
        self._wanted = wanted
        self._clock_s = 0.0
        self._since: float | None = None
        self._taken_at_s: dict[int, float] = {}
        self._last_cost_s = 0.0
        self._asked_for: set[int] = set()
        self._former: dict[tuple[Moment, str], int] = {}  # numbers of places whose checkpoint was forgotten
        self._is_first_wanted = True
        self.why_none = ""

    def runs(self) -> None:
        self._since = time.monotonic()

    def stands(self) -> None:
        if self._since is not None:
            self._clock_s += time.monotonic() - self._since
            self._since = None

    @property
    def due_in_s(self) -> float | None:
        """Running time until another checkpoint is due; None where none are taken. One that lies close by will do."""
        if not self._wanted or self.why_none:
            return None
        spacing_s = max(self._spacing_s, COST_SHARE * self._last_cost_s)
        before_s = max((at for at in self._taken_at_s.values() if at <= self._clock_s), default=None)
        return 0.0 if before_s is None else max(before_s + spacing_s - self._clock_s, 0.0)

    def origin(self) -> None:
        """Where the rank stands at its beginning."""
        if self._wanted:
            self._travel.keep_origin()

    def first(self, moment: Moment, side: str) -> None:
        """One where the rank stands for the first time."""
        if not self._taken_at_s and self._is_first_wanted:
            self.save(moment, side, asked=False)

    @contextmanager
    def coming_to_one(self) -> Iterator[None]:
        """On the way to a place where one is asked for: no other is needed there."""
        self._is_first_wanted = False
        try:
            yield
        finally:
            self._is_first_wanted = True

    def save(self, moment: Moment, side: str, *, asked: bool, number: int | None = None) -> None:
        """Of the rank as it stands, in the gate; where there is one of this very place already, that will do. That it
        cannot be done is said once, and raised where it was asked. `side`: which place of that moment (`Stopped.side`).
        `number`: as `Travel.save` takes it."""
        if not asked and (self.why_none or not self._wanted):
            return
        if number is None and (there := self._there(moment, side)) is not None:
            self._taken_at_s[there.number] = self._clock_s  # come to again from further back: as good as a new one
            if asked:
                self._asked_for.add(there.number)
                self._tell_of(there, asked=True, is_kept=True)
            return
        number = self._former.pop((moment, side), None) if number is None else number
        began = time.monotonic()
        try:
            made = self._travel.save(moment, number, side)
        except FacilityError as error:
            if asked:
                raise
            self.why_none = str(error)
            self._tell(notices.Said(f"going back replays from the start moment: {error}; {error.hint}".rstrip("; ")))
            return
        self._last_cost_s = time.monotonic() - began
        self._taken_at_s[made.number] = self._clock_s
        if asked:
            self._asked_for.add(made.number)
        self._tell_of(made, asked=asked, again=number is not None)
        self._thin()

    def _tell_of(self, made: Checkpoint, *, asked: bool, again: bool = False, is_kept: bool = False) -> None:
        self._tell(
            notices.CheckpointMade(
                number=made.number,
                moment=made.moment,
                size_bytes=made.size_bytes,
                cost_s=made.cost_s,
                asked=asked,
                again=again,
                is_kept=is_kept,
            )
        )

    def _there(self, moment: Moment, side: str) -> Checkpoint | None:
        mine = (one for one in self._travel.checkpoints if one.number in self._taken_at_s)
        return next((one for one in mine if one.moment == moment and one.side == side), None)

    def returned_to(self, number: int) -> None:
        self._clock_s, self._since = self._taken_at_s.get(number, 0.0), None

    @property
    def asked_for(self) -> tuple[Checkpoint, ...]:
        """Those that a person wants, ascending by position."""
        return tuple(kept for kept in self._travel.checkpoints if kept.number in self._asked_for)

    def forget_all(self) -> None:
        """Also those that were asked for. What is taken by itself at the same places again has the same numbers."""
        for kept in self._travel.checkpoints:
            if kept.number in self._taken_at_s and kept.number not in self._asked_for:
                self._former[kept.moment, kept.side] = kept.number
        for number in self._taken_at_s:
            self._travel.forget(number)
        self._taken_at_s.clear()
        self._asked_for.clear()

    def _thin(self) -> None:
        while True:
            asked, at_s = frozenset(self._asked_for), {0: 0.0, **self._taken_at_s}
            number = to_drop(self._travel.checkpoints, at_s, asked, self._most, self._most_bytes)
            if number is None:
                return
            self._travel.forget(number)
            self._taken_at_s.pop(number, None)
