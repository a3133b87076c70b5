"""A Work in Python that knows when it is first waited for, by the program or by torch's C++.

C++ waits by calling back into Python, without holding the GIL meanwhile; DDP asks for the future, which is completed
by whoever was told to keep its promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from prismdbg.rank.c10d.unwaited_works import KeptWorks
from prismdbg.rank.program.not_compiled import not_compiled


class Watcher(Protocol):
    """What stands behind one work."""

    def wait(self) -> None:
        """Once, on the thread that first waits: returns when it is complete."""
        ...

    def is_there(self) -> bool: ...

    def promise(self, keep: Callable[[], None], *, is_seen: bool = False) -> None:
        """Somebody has its future, to be completed by `keep` when the time has come. is_seen: `ends_backward` is called
        before anybody waits for it."""
        ...

    def ends_backward(self) -> None:
        """Whoever has its future begins to wait for it: the backward pass is over."""
        ...


class WatchedWork(dist.Work):  # type: ignore[misc]
    """Kept alive until it was waited for, or its future was completed: C++ does not keep this half of it alive.

    held: tensors that live at least as long as it does, as those of a backend's work. devices: whose streams wait for
    its future.
    """

    def __init__(
        self,
        watcher: Watcher,
        outputs: list[torch.Tensor],
        source: int = -1,
        held: Sequence[torch.Tensor] = (),
        devices: Sequence[torch.device] = (),
    ) -> None:
        super().__init__()
        self._watcher = watcher
        self._outputs = outputs
        self._held = held
        self._devices = list(devices)
        self._source = source
        self._is_waited_for = False
        self._future: Any = None
        _alive.add(self, len(outputs))

    @not_compiled
    def wait(self, timeout: timedelta | None = None) -> bool:
        if self._devices or not self._is_waited_for:  # each stream of a device waits for itself
            self._is_waited_for = True
            self._watcher.wait()
        _alive.discard_waited(self)
        return True

    @not_compiled
    def synchronize(self) -> None:
        if self._devices:
            self._watcher.wait()
        _alive.discard_waited(self)

    @not_compiled
    def is_completed(self) -> bool:
        return self._watcher.is_there()

    def is_success(self) -> bool:
        return True

    def result(self) -> list[torch.Tensor]:
        return self._outputs

    @not_compiled
    def get_future(self) -> Any:
        if self._future is None:
            self._future = torch.futures.Future(devices=self._devices)
            self._watcher.promise(self._keep)
        return self._future

    def _keep(self) -> None:
        self._future.set_result(self._outputs)
        _alive.discard(self)

    def let_go(self) -> None:
        """It is complete, and nobody need wait for it."""
        _alive.discard(self)

    def _source_rank(self) -> int:
        return self._source

    source_rank = _source_rank


_alive = KeptWorks()
