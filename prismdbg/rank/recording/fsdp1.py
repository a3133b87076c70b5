"""Which modules of the program FullyShardedDataParallel (FSDP1) shards. Its `state_dict` issues collectives."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from prismdbg.rank.program.imports import AfterImport

_MODULE = "torch.distributed.fsdp.fully_sharded_data_parallel"


class ShardedModules:
    """Knows them from the call that makes one: what the program has frozen (`gc.freeze`) is in no list of objects."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[Any]] = []  # no set: a class of the program's may refuse to be hashed

    def watch(self, failed: Callable[[str], None]) -> None:
        """From now on, or from the import on. `failed` gets why that is not possible."""

        def imported(_: str) -> None:
            try:
                self._wrap(sys.modules[_MODULE].FullyShardedDataParallel)
            except Exception as error:
                failed(f"prismdbg cannot see which modules FullyShardedDataParallel shards: {error!r}")

        if _MODULE in sys.modules:
            imported(_MODULE)
        else:
            sys.meta_path.insert(0, AfterImport((_MODULE,), imported, "FullyShardedDataParallel is not seen"))

    def any(self) -> bool:
        """Whether one that lives has its parameters in parts on several ranks."""
        modules = [module for made in self._made if (module := made()) is not None]
        return any(module.sharding_strategy.name != "NO_SHARD" for module in modules)

    def _wrap(self, kind: Any) -> None:
        original = kind.__init__

        @functools.wraps(original)
        def made(module: Any, *args: Any, **named: Any) -> None:
            original(module, *args, **named)
            self._made.append(weakref.ref(module))

        kind.__init__ = made
