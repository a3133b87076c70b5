"""torch.distributed's key-value stores in a replay: what other ranks set in them is not in a recording.

A program that asks for it would wait for its store's timeout, half an hour by default. Here it gets an error that says
so, and the client is told of the first call, because a count (`add`) that lacks the other ranks is no error.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from prismdbg.capsule.spawned import NOT_RECORDED
from prismdbg.rank.emulation.fake_world import IsolatedStore
from prismdbg.rank.program.not_compiled import not_compiled

GRACE_S = 5.0  # in which another thread of the program may set the key
_TORCH = f"{Path(torch.__file__).parent}/"  # not its neighbours, such as torchft
_WAIT = ("get", "multi_get", "wait")
_ASKED = (*_WAIT, "add", "compare_set", "check")

Tell = Callable[[str], None]


class LoneStores:
    """All stores of the process, from `install` on."""

    def __init__(self) -> None:
        self._tell: Tell | None = None
        self._is_told = False

    def install(self) -> None:
        for name in _ASKED:
            setattr(dist.Store, name, _asked(getattr(dist.Store, name), self._seen))
        IsolatedStore.wait = _asked(IsolatedStore.wait, self._seen)  # type: ignore[method-assign]
        for module in (dist, c10d):
            module.TCPStore = LoneStore

    def listen(self, tell: Tell) -> None:
        """`tell` is called with a note, once, of the first call from now on."""
        self._tell = tell

    def _seen(self, frame: FrameType | None) -> bool:
        """Whether the call is one of the program's own."""
        if frame is None or frame.f_code.co_filename.startswith(_TORCH):
            return False
        if self._tell is not None and not self._is_told:
            self._is_told = True
            where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            self._tell(
                f"the program uses a store of torch.distributed at {where}: a replay lacks what other ranks set there"
            )
        return True


class LoneStore(IsolatedStore):
    """In place of a TCPStore, of which this rank would be a client or the only one."""

    def __init__(self, host_name: str = "", port: int = 0, *_: Any, **__: Any) -> None:
        super().__init__()
        self.host, self.port = host_name, port


def _asked(original: Any, seen: Callable[[FrameType | None], bool]) -> Any:
    waits = original.__name__ in _WAIT

    @not_compiled
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if seen(sys._getframe(1)) and waits:
            keys = args[0] if args else next(iter(kwargs.values()))
            _require(self, [keys] if isinstance(keys, str) else keys)
        return original(self, *args, **kwargs)

    return method


def _require(store: Any, keys: list[str]) -> None:
    end = time.monotonic() + GRACE_S
    while not store.check(keys):
        if time.monotonic() > end:
            raise RuntimeError(
                f"{NOT_RECORDED}: {', '.join(keys)} in a store of torch.distributed, which this rank has not set: "
                "send it with a collective, such as broadcast_object_list"
            )
        time.sleep(0.05)
