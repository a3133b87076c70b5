"""Which module of a framework shows that the program uses it, and which of ours then looks after its training state.

Standard library only: it is imported before the program's first line. No adapter is loaded in a job whose state nobody
asks for.
"""

from __future__ import annotations

import importlib
import sys

MODULES = {
    "accelerate.data_loader": "accelerate_loop",
    "lightning.pytorch.loops.training_epoch_loop": "lightning_loop",
    "pytorch_lightning.loops.training_epoch_loop": "lightning_loop",
    "torchtitan.components.checkpoint": "torchtitan_checkpoints",
    "torchtitan.components.checkpointer.base": "torchtitan_checkpoints",
    "transformers.trainer": "transformers_trainer",
}


def imported(name: str) -> None:
    """The import of one of `MODULES` is complete, and so is torch's, which it needs."""
    point = sys.modules.get("prismdbg.rank.recording.restore_point")
    if point is None or not point.is_awaited():
        return
    try:
        importlib.import_module(f"prismdbg.rank.frameworks.{MODULES[name]}").install(sys.modules[name])
    except Exception as error:
        print(f"prismdbg: the state of {name} is not registered: {error!r}", file=sys.stderr)
