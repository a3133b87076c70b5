"""Works in Python that must live until they are waited for."""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from typing import Any

from torch._C import _distributed_c10d as c10d

from prismdbg.rank.c10d.call import is_capturing
from prismdbg.rank.c10d.caller import PYTHON_CALLERS, calling_file


class UnwaitedWorks:
    """Keeps the Python halves of works alive until they are waited for. A program may drop a work that it never waits
    for: once the backend has completed it, each further call gives its tensors free. Whether C++ still holds a work is
    not known, so only those that torch's Python functions asked for are ever given up, and of these none that torch's
    registry holds."""

    MANY = 64

    def __init__(self) -> None:
        self._kept: set[Any] = set()
        self._open: OrderedDict[Any, None] = OrderedDict()  # who alone holds one of these has dropped it
        # On its way to the program, in another thread, C++ alone holds a work.
        self._released: deque[Any] = deque(maxlen=self.MANY)

    def add(self, work: Any) -> None:
        if not calling_file().endswith(PYTHON_CALLERS) or _is_registering():
            self._kept.add(work)
            return
        if not is_capturing():
            self._release_complete()
        self._open[work] = None

    def discard(self, work: Any) -> None:
        self._kept.discard(work)
        self._open.pop(work, None)

    def discard_seen(self, work: Any) -> None:
        """The program knows that it is complete; C++ may still wait for it."""
        self._open.pop(work, None)

    def _release_complete(self) -> None:
        """From the oldest on, up to the second one that stays; these are looked at again after all others."""
        stay: list[Any] = []
        while len(stay) < 2:
            try:
                work, references = _oldest(self._open)
            except KeyError:  # none is left
                break
            if references <= _OWN_REFERENCES and _was_released(work):
                self._released.append(work)
            else:
                stay.append(work)
        self._open.update(dict.fromkeys(stay))


def _is_registering() -> bool:
    """Whether torch keeps each work by its tensors, for `wait_tensor` to wait for it later."""
    return bool(getattr(c10d, "_allow_inflight_collective_as_graph_input", bool)())


def _oldest(works: OrderedDict[Any, None]) -> tuple[Any, int]:
    """The oldest work, taken out, and how many references it has now."""
    work, _ = works.popitem(last=False)
    return work, sys.getrefcount(work)


def _was_released(work: Any) -> bool:
    """True also where the backend cannot tell whether it is complete: it is not asked again."""
    try:
        return bool(work.release())
    except Exception:
        return True


_OWN_REFERENCES = _oldest(OrderedDict.fromkeys([object()]))[1]  # Python 3.14 counts fewer
