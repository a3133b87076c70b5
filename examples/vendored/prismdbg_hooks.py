"""The two functions of prismdbg that a training program may call, as one file without dependencies.

Copy it into your project, so that the program also runs where prismdbg is not installed. Both do nothing there, and do
what `prismdbg.restore_point` and `prismdbg.step` do where `prismdbg record` or `prismdbg replay` started the program.
"""

from __future__ import annotations

import sys
from typing import Any


def restore_point(**objects: Any) -> int | None:
    """Register the training state, each object with `state_dict` and `load_state_dict`; call it once, as the last thing
    before the training loop. Gives the step to go on from, or None to begin at the beginning."""
    point = sys.modules.get("prismdbg.rank.recording.restore_point")
    return point.reached(objects) if point is not None else None


def step(number: int) -> None:
    """Mark the beginning of step `number`; from then on optimizer steps no longer count."""
    steps = sys.modules.get("prismdbg.rank.recording.steps")
    if steps is not None:
        steps.mark(number)
