"""The groups of ranks that run at once: gloo over the loopback, met through files that only these ranks see.

A group all of whose members run at once is real. Of any other group that has several of them they are `Partners`. All
other groups, and the program's own store, know nothing of it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from prismdbg.rank.emulation.partners import Partners
from prismdbg.settings.emulation import Emulation
from prismdbg.settings.mesh_axes import Axes
from prismdbg.settings.process_stat import text_of

INTERFACE = "GLOO_SOCKET_IFNAME"
LEAST_TO_MEET = timedelta(minutes=5)  # ranks of one machine start one after another
TO_LEAVE = timedelta(minutes=5)
TO_SETTLE_S, LOOK_S, QUIET_LOOKS = 5.0, 0.01, 3


class RealGroups:
    """Asked for each new group, in the order in which the program makes them, which is the same on all its members."""

    def __init__(self, settings: Emulation) -> None:
        self._axes = Axes(settings.axes)
        self._rank = settings.rank
        self._together = settings.together
        self._folder = Path(settings.meeting)
        self.circle = circle_of(settings)
        self._here = frozenset(self.circle)
        self._made: Counter[tuple[int, ...]] = Counter()
        self._real: set[str] = set()
        self._partners: dict[str, Partners] = {}
        self._all: Any = None  # the backend of the whole circle, made with the first group of all of it

    def is_real(self, group: str) -> bool:
        return group in self._real

    def partners(self, group: str) -> Partners | None:
        return self._partners.get(group)

    def make(self, ranks: Sequence[int], timeout: timedelta, build: Callable[[Any], Any]) -> Any:
        """What `build` makes of a store: a real group of these ranks where it gets one, a fake one of None."""
        places = [place for place, rank in enumerate(ranks) if rank in self._here]
        if self._rank not in self._here.intersection(ranks) or len(places) < 2:
            return build(None)
        here = tuple(ranks[place] for place in places)
        if len(here) == len(ranks):
            group = self._built_really(build, here, timeout)
        else:
            group = build(None)
            self._add_partners(group.group_name, places, here, timeout)
        if self._all is None and len(here) == len(self.circle):
            self._all = self._backend(here, timeout)
        return group

    def leave(self) -> None:
        """Returns when all of the circle have come here: none closes a connection that another one still reads."""
        if self._all is not None:
            self._all.barrier(opts=_within(TO_LEAVE)).wait()

    def settle(self) -> None:
        """Before the interpreter ends. A thread of gloo drops the tensors of a work just after it is complete,
        and needs the interpreter for that: where that is gone, it ends the process by `std::terminate`."""
        end, quiet = time.monotonic() + TO_SETTLE_S, 0
        while quiet < QUIET_LOOKS and time.monotonic() < end:
            time.sleep(LOOK_S)  # without the interpreter's lock
            quiet = 0 if _runs_gloo() else quiet + 1

    def _built_really(self, build: Callable[[Any], Any], here: tuple[int, ...], timeout: timedelta) -> Any:
        with _over_the_loopback():
            group = build(self._store(here, timeout))
        self._partners.pop(group.group_name, None)  # of an earlier group of that name
        self._real.add(group.group_name)
        return group

    def _add_partners(self, name: str, places: list[int], here: tuple[int, ...], timeout: timedelta) -> None:
        self._real.discard(name)
        self._partners[name] = Partners(self._backend(here, timeout), places, self._stands_for)

    def _backend(self, here: tuple[int, ...], timeout: timedelta) -> dist.ProcessGroupGloo:
        with _over_the_loopback():
            place = here.index(self._rank)
            return dist.ProcessGroupGloo(self._store(here, timeout), place, len(here), timeout=timeout)

    def _store(self, here: tuple[int, ...], timeout: timedelta) -> dist.PrefixStore:
        """Of the n-th group that exactly these have made: each of them counts alike."""
        self._made[here] += 1
        files = dist.FileStore(str(self._folder / "-".join(map(str, self.circle))), len(self.circle))
        files.set_timeout(max(timeout, LEAST_TO_MEET))
        return dist.PrefixStore(f"{'-'.join(map(str, here))}#{self._made[here]}", files)

    def _stands_for(self, rank: int) -> int:
        """The rank of the circle at the same coordinates along its axes."""
        theirs = self._axes.coordinates(rank)
        own = self._axes.coordinates(self._rank)
        number = 0
        for name, size, one, other in zip(self._axes.names, self._axes.sizes, own, theirs, strict=True):
            number = number * size + (other if name in self._together else one)
        return number


def _runs_gloo() -> bool:
    """Whether a thread of gloo has something to do."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            name, _, state = text_of(task / "stat").partition("(")[2].rpartition(")")
            if name.startswith("pt_gloo") and state.split()[0] != "S":
                return True
    return False


def circle_of(settings: Emulation) -> tuple[int, ...]:
    """The ranks that run at once with this one, itself among them, in ascending order."""
    joined = "+".join(settings.together)
    return tuple(Axes(settings.axes).members(settings.rank, joined)) if joined else (settings.rank,)


@contextmanager
def _over_the_loopback() -> Iterator[None]:
    """Whatever interface the job uses elsewhere."""
    before = os.environ.get(INTERFACE)
    os.environ[INTERFACE] = "lo"
    try:
        yield
    finally:
        if before is None:
            del os.environ[INTERFACE]
        else:
            os.environ[INTERFACE] = before


def _within(timeout: timedelta) -> Any:
    options = dist.BarrierOptions()
    options.timeout = timeout
    return options
