"""Works in Python that must live until they are waited for."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict, deque
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from prismdbg.rank.c10d.call import is_capturing
from prismdbg.rank.c10d.caller import PYTHON_CALLERS, calling_file


class KeptWorks:
    """Keeps the Python halves of works alive as long as C++ may wait for them: not known is whether it still holds one.

    Torch's registry holds works by the tensors that they receive: those of functional collectives, and, in a program's
    `allow_inflight_collective_as_graph_input_ctx`, all. `wait_tensor` waits for one and takes it out, from any thread.
    Each thread has a registry of its own: where that of this one is empty, none of the works that were issued here is
    waited for any more.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[int, set[Any]]] = {}  # for how many tensors it may be waited for, and where it goes
        self._thread = threading.local()
        self._of_threads: dict[int, set[Any]] = {}  # those in a registry, also of threads that have ended

    def add(self, work: Any, tensors: int) -> None:
        here = self._here()
        if _is_registering():
            self._registered(work, here)
        else:
            self._kept[work] = 1 if _is_of_python() else tensors, here

    def discard(self, work: Any) -> None:
        """The program has no need to wait for it."""
        self._kept.pop(work, None)

    def discard_waited(self, work: Any) -> None:
        tensors, there = self._kept.get(work) or (1, self._here())
        self.discard(work)
        if tensors > 1:
            self._registered(work, there)
        elif leave_registry(work):
            there.discard(work)
        self._here()

    def _registered(self, work: Any, there: set[Any]) -> None:
        there.add(work)
        self._of_threads[id(there)] = there

    def _here(self) -> set[Any]:
        """The works of this thread that its registry may hold: gives up those that it no longer holds."""
        try:
            works: set[Any] = self._thread.works
        except AttributeError:
            works = self._thread.works = set()
        if works and not _registry_size():
            works.clear()
        if not works:
            self._of_threads.pop(id(works), None)
        return works


class UnwaitedWorks(KeptWorks):
    """A program may drop a work that it never waits for: once the backend has completed it, each further call gives its
    tensors free. Only those that torch's Python functions asked for are ever given up so, and of these none that torch
    registers."""

    MANY = 64

    def __init__(self) -> None:
        super().__init__()
        self._open: OrderedDict[Any, None] = OrderedDict()  # who alone holds one of these has dropped it
        # On its way to the program, in another thread, C++ alone holds a work.
        self._released: deque[Any] = deque(maxlen=self.MANY)

    def add(self, work: Any, tensors: int) -> None:
        if not _is_of_python() or _is_registering():
            super().add(work, tensors)
            return
        self._here()
        if not is_capturing():
            self._release_complete()
        self._open[work] = None

    def discard(self, work: Any) -> None:
        super().discard(work)
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


def leave_registry(work: Any) -> bool:
    """A backend takes its own work out of torch's registry when it is waited for; there it holds this one. Whether it
    does: only while it registers. Asked from Python, torch says once that it may do so no more."""
    if _is_registering():
        dist.Work.synchronize(work)
        return True
    return False


def _is_of_python() -> bool:
    """Whether torch's Python functions ask for it, which do not register."""
    return calling_file().endswith(PYTHON_CALLERS)


def _is_registering() -> bool:
    """Whether torch keeps each work by its tensors, for `wait_tensor` to wait for it later."""
    return bool(getattr(c10d, "_allow_inflight_collective_as_graph_input", bool)())


def _registry_size() -> int:
    return int(getattr(c10d, "_get_work_registry_size", int)())


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
