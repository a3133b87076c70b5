"""prismdbg: checkpoint-and-replay debugger for distributed training.

Importing this package is cheap and needs nothing but the standard library: it is imported inside training jobs.
"""

from __future__ import annotations

import sys
from typing import Any

__version__ = "0.1.0"


def restore_point(**objects: Any) -> int | None:
    """Register the training state, each object with `state_dict` and `load_state_dict`; call it once, as the last thing
    before the training loop.

    None, and nothing else happens, unless this process is recorded by `prismdbg record --state-every`, or replayed from
    a state snapshot. There the state is loaded, and the step is returned with which the loop goes on.
    """
    point = sys.modules.get("prismdbg.rank.recording.restore_point")
    return point.reached(objects) if point is not None else None


def step(number: int) -> None:
    """Mark the beginning of step `number` by hand; from then on optimizer steps no longer count.

    A no-op unless this process is recorded or replayed by prismdbg. A number that is negative or lower than the one
    before is ignored, and said once on stderr; the same number again begins nothing.
    """
    steps = sys.modules.get("prismdbg.rank.recording.steps")
    if steps is not None:
        steps.mark(number)
