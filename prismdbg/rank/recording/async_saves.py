"""Which training checkpoints torch's `async_save` is writing in a thread. It issues collectives before it writes and
after it: a replay that begins between them has no such thread."""

from __future__ import annotations

import functools
import weakref
from concurrent.futures import Future
from typing import Any

from prismdbg.rank.program.imports import when_imported

_MODULE = "torch.distributed.checkpoint._async_thread_executor"


class AsyncSaves:
    def __init__(self) -> None:
        self._begun: weakref.WeakSet[Future[Any]] = weakref.WeakSet()

    def watch(self) -> None:
        """From now on, or from the import on."""
        when_imported(_MODULE, self._wrap, "saves of torch.distributed.checkpoint.async_save are not seen")

    def _wrap(self, module: Any) -> None:
        kind = module._ThreadBasedAsyncCheckpointExecutor
        original = kind.execute_save

        @functools.wraps(original)
        def execute_save(*args: Any, **named: Any) -> Any:
            save = original(*args, **named)
            if isinstance(save, Future):
                self._begun.add(save)
            return save

        kind.execute_save = execute_save

    def any_runs(self) -> bool:
        return any(not save.done() for save in self._begun)
