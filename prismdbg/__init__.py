"""prismdbg: checkpoint-and-replay debugger for distributed training.

Importing this package is cheap and needs nothing but the standard library: it is imported inside training jobs.
"""

from __future__ import annotations

import sys

__version__ = "0.1.0"


def step(number: int) -> None:
    """Mark the beginning of step `number` by hand; from then on optimizer steps no longer count.

    A no-op unless this process is recorded or replayed by prismdbg. A number that is negative or lower than the one
    before is ignored, and said once on stderr; the same number again begins nothing.
    """
    steps = sys.modules.get("prismdbg.rank.recording.steps")
    if steps is not None:
        steps.mark(number)
