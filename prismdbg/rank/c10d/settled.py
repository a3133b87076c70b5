"""Futures that follow those of a backend, and the groups whose threads complete them."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

import torch

from prismdbg.rank.c10d.completion import Completion
from prismdbg.rank.program.not_compiled import not_compiled


class GroupsInUse:
    """Groups whose threads still hold a callback of ours: they let go of it, under Python's lock, after the program was
    told that the collective is complete. A gloo group that is freed waits for its threads without giving up that lock
    (torch 2.13), so neither would go on. A group is let go here in a thread of the program's, `AFTER_S` after its
    callback was: the group's thread then frees the rest of the work, for which it takes the lock once more."""

    AFTER_S = 1.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[int, tuple[Any, object]] = {}
        self._gone: deque[tuple[float, int]] = deque()
        self._numbers = count()

    def keep(self, group: Any, callback: Callable[..., Any]) -> None:
        """Keeps `group` while `callback` lives. Threads of the program may call this at once."""
        self._let_go()
        number = next(self._numbers)
        self._kept[number] = group, weakref.ref(callback, lambda _: self._gone.append((self._clock(), number)))

    def _let_go(self) -> None:
        until = self._clock() - self.AFTER_S
        while True:
            try:
                at_s, number = self._gone.popleft()
            except IndexError:  # also where another thread took the last one
                return
            if at_s > until:
                self._gone.appendleft((at_s, number))
                return
            self._kept.pop(number, None)


_groups_in_use = GroupsInUse()


def settled(future: Any, completion: Completion, group: Any) -> Any:
    """A future that follows the backend's, and is complete when the recorder was told."""
    outputs = completion.outputs

    @not_compiled
    def settle(done: Any) -> Any:
        try:
            value = done.value()
        except Exception as error:
            if completion.rescue() is not None:
                return outputs
            completion.fail(error)
            raise
        completion.done()
        return value

    _groups_in_use.keep(group, settle)
    return future.then(settle)


def complete_future(outputs: list[torch.Tensor]) -> Any:
    future: Any = torch.futures.Future()
    future.set_result(outputs)
    return future
