"""Ranks that run at once: all are started, and go on by themselves. What one of them lacks is seen to meanwhile."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from prismdbg.emulate.emulated_rank import EmulatedRank, first_event
from prismdbg.emulate.kept_values import KeptValues
from prismdbg.emulate.rank_scheduler import Ended, Event, Go, Kept, MissingValue, NotSentError, lost
from prismdbg.errors import RankLost, WaitTimeout
from prismdbg.model.meanwhile import Tell, unheard, working
from prismdbg.settings.emulation import STORE_KEY

LOOK_S = 0.02  # how often it is looked whether a partner has sent a value

Supply = Callable[[MissingValue], None]
Give = Callable[[int], EmulatedRank]


class RanksAtOnce:
    """`give`: starts the rank or lets it go on, and does not wait. go: as of `RankScheduler`, for one that is alone."""

    def __init__(self, give: Give, go: Go, kept: KeptValues, bound_s: float) -> None:
        self._give, self._go, self._kept, self._bound_s = give, go, kept, bound_s
        self._tell: Tell = unheard
        self._begin((), 0.0)

    def _begin(self, circle: Sequence[int], now: float) -> None:
        self._circle, self._began, self._deadline = frozenset(circle), now, now + self._bound_s
        self._running: dict[int, EmulatedRank] = {}
        self._standing: dict[int, MissingValue] = {}
        self._heard: deque[tuple[EmulatedRank, MissingValue]] = deque()  # and not yet seen to
        self._ended: set[int] = set()
        self._last: dict[int, str] = {}

    def complete(self, circle: Sequence[int], supply: Supply) -> None:
        """Until the programs of all have ended. supply: returns once another rank has sent the value."""
        self._begin(circle, time.monotonic())
        self._running.update({rank: self._give(rank) for rank in circle})
        with working() as self._tell:
            while self._ended != self._circle:
                self._wake()
                if self._heard:
                    self._lacks(*self._heard.popleft(), supply)
                elif self._running:
                    self._listen()
                else:
                    self._all_stand()

    def go(self, rank: int, until: str, since: MissingValue | None) -> Event:
        """As of `RankScheduler`: one that runs at once with others needs no turn, only time."""
        return self._go(rank, until, since) if rank not in self._circle else self._kept_by(rank, until)

    def _listen(self) -> None:
        """For a moment where somebody stands: a partner may have sent what it lacks."""
        until = min(self._deadline, time.monotonic() + LOOK_S) if self._standing else self._deadline
        found = self._first_event(until)
        if found is None:
            self._check_time()
            return
        self._note(*found)

    def _note(self, rank: EmulatedRank, event: Event) -> None:
        del self._running[rank.rank]
        if isinstance(event, MissingValue):
            self._heard.append((rank, event))
        else:
            self._ended.add(rank.rank)
            rank.wall_s += time.monotonic() - self._began

    def _first_event(self, until: float) -> tuple[EmulatedRank, Event] | None:
        try:
            return first_event(list(self._running.values()), until, self._tell)
        except RankLost as error:
            raise self._with_partners(error) from error

    def _lacks(self, rank: EmulatedRank, value: MissingValue, supply: Supply) -> None:
        is_there = self._kept.has(self._senders(value), value.key)
        if is_there and self._last.get(rank.rank) == value.key and not value.is_optional:
            raise lost(value, f"rank {value.source} sends data of another size")
        self._last[rank.rank] = value.key
        if not is_there and self._is_of_partners(value):
            self._standing[rank.rank] = value
            return
        if is_there or self._is_supplied(value, supply):
            self._go_on(rank.rank)
        else:
            self._standing[rank.rank] = value

    def _is_supplied(self, value: MissingValue, supply: Supply) -> bool:
        """False where another rank does not have it, and one that runs at once may: any of them may set a key."""
        began = time.monotonic()
        try:
            supply(value)
        except NotSentError:
            if value.collective != STORE_KEY or not self._circle - {value.rank}:
                raise
            return False
        finally:
            self._deadline += time.monotonic() - began  # that has a bound of its own
        return True

    def _senders(self, value: MissingValue) -> frozenset[int]:
        return (self._circle - {value.rank}) | ({value.source} - {-1})

    def _is_of_partners(self, value: MissingValue) -> bool:
        return value.source in self._circle or (value.source < 0 and bool(value.key))

    def _wake(self) -> None:
        """Those whose value is there by now, and those that can do without it once nobody will send it."""
        for rank, value in list(self._standing.items()):
            if self._kept.has(self._senders(value), value.key):
                self._go_on(rank)
            elif not self._circle - self._ended - {rank}:
                self._do_without(value)

    def _all_stand(self) -> None:
        optional = [value for value in self._standing.values() if value.is_optional]
        self._do_without((optional or list(self._standing.values()))[0])

    def _do_without(self, value: MissingValue) -> None:
        """Nobody will send it."""
        if not value.is_optional:
            raise self._stuck(value)
        self._go_on(value.rank)

    def _go_on(self, rank: int) -> None:
        self._standing.pop(rank, None)
        self._running[rank] = self._give(rank)

    def _stuck(self, value: MissingValue) -> NotSentError:
        waiting = [each for each in self._standing.values() if each.rank != value.rank]
        if waiting:
            return lost(value, f"rank {waiting[0].rank}, which runs with it, itself lacks {waiting[0].place}")
        return lost(value, "the ranks that run with it have ended without sending it")

    def _kept_by(self, rank: int, until: str) -> Event:
        """For a rank that runs alone, as one of these lacks its data, and in turn lacks what one of these sends."""
        while not self._kept.has([rank], until):
            if rank in self._ended:
                return Ended()
            if rank not in self._running:
                raise NotSentError(f"rank {rank} itself waits for another rank's data")
            found = self._first_event(min(self._deadline, time.monotonic() + LOOK_S))
            if found is None:
                self._check_time()
            else:
                self._note(*found)
        return Kept(until)

    def _check_time(self) -> None:
        if time.monotonic() < self._deadline:
            return
        where = "; ".join(f"rank {number} {rank.standing}" for number, rank in sorted(self._running.items()))
        raise WaitTimeout(
            f"waited {self._bound_s:g} s for ranks that run at once: {where}",
            hint="compare the lines: the ranks may wait for each other. Or give --steps, or a longer --timeout",
        )

    def _with_partners(self, error: RankLost) -> RankLost:
        """A rank often fails because another one is gone: those that had ended are named."""
        if not self._ended:
            return error
        noun = "Rank" if len(self._ended) == 1 else "Ranks"
        who = f"{noun} {', '.join(map(str, sorted(self._ended)))}"
        return RankLost(f"{error}. {who}, which ran at the same time, had already ended", hint=error.hint)
