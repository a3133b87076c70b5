"""Which modules of the program FullyShardedDataParallel (FSDP1) shards. Its `state_dict` issues collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prismdbg.rank.program.imports import when_imported
from prismdbg.rank.recording.instances import Instances

_MODULE = "torch.distributed.fsdp.fully_sharded_data_parallel"


class ShardedModules:
    def __init__(self) -> None:
        self._instances = Instances()

    def watch(self, failed: Callable[[str], None]) -> None:
        """From now on, or from the import on. `failed` gets why that is not possible."""

        def imported(module: Any) -> None:
            try:
                self._instances.watch(module.FullyShardedDataParallel)
            except Exception as error:
                failed(f"prismdbg cannot see which modules FullyShardedDataParallel shards: {error!r}")

        when_imported(_MODULE, imported, "FullyShardedDataParallel is not seen")

    def any(self) -> bool:
        """Whether one that lives has its parameters in parts on several ranks."""
        return any(module.sharding_strategy.name != "NO_SHARD" for module in self._instances.living())
