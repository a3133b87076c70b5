"""A rank alone may run on a machine with fewer GPUs than its node has in the job."""

from __future__ import annotations

import os
import re

import torch

# CUDA's words, those of torch.cuda, and those of init_process_group
_NO_SUCH_DEVICE = re.compile(r"invalid device (ordinal|id)|device_id \S+ is out of range", re.IGNORECASE)


def advise(error: BaseException, advice: str) -> None:
    """Adds to an error about a GPU that is not here what to do. `advice`: with `{gpus}`, how many there are, and
    `{needed}`, how many LOCAL_RANK asks for."""
    gpus, needed = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", "0")) + 1
    if needed > gpus > 0 and _NO_SUCH_DEVICE.search(str(error)):
        error.add_note(f"prismdbg: LOCAL_RANK {needed - 1} needs {needed} GPUs; this machine has {gpus}")
        error.add_note(f"try: {advice.format(gpus=gpus, needed=needed)}")
