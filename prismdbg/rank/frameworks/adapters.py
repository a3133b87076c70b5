"""Which module of a framework shows that the program uses it, and which of ours then looks after its training state,
counts its steps, or sees how it ends.

Standard library only: it is imported before the program's first line. No adapter of the state is loaded in a job whose
state nobody asks for.
"""

from __future__ import annotations

import importlib
import sys

from prismdbg.rank.program.stderr import say

MODULES = {
    "accelerate.data_loader": "accelerate_loop",
    "lightning.pytorch.loops.training_epoch_loop": "lightning_loop",
    "pytorch_lightning.loops.training_epoch_loop": "lightning_loop",
    "torchtitan.components.checkpoint": "torchtitan_checkpoints",
    "torchtitan.components.checkpointer.base": "torchtitan_checkpoints",
    "transformers.trainer": "transformers_trainer",
}


STEPS = {
    "deepspeed.runtime.engine": "deepspeed_engine",
    "megatron.core.optimizer.optimizer": "megatron_optimizers",
}
ENDS = {"ray.train.v2._internal.execution.worker_group.thread_runner": "ray_train"}
NAMES = (*MODULES, *STEPS, *ENDS)


def imported(name: str) -> None:
    """The import of one of `NAMES` is complete, and so is torch's where it needs that."""
    if name in ENDS:
        _install(ENDS[name], name, f"how ranks end is not seen in {name}")
        return
    if name in STEPS:
        _install(STEPS[name], name, f"the steps of {name} are counted by its calls of torch's optimizer alone")
        return
    point = sys.modules.get("prismdbg.rank.recording.restore_point")
    if point is not None and point.is_awaited():
        _install(MODULES[name], name, f"the state of {name} is not registered")


def _install(adapter: str, name: str, otherwise: str) -> None:
    """otherwise: what holds if it fails."""
    try:
        importlib.import_module(f"prismdbg.rank.frameworks.{adapter}").install(sys.modules[name])
    except Exception as error:
        say(f"{otherwise}: {error!r}")
