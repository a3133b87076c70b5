"""A rank that is its job's store server, as no launcher is: on libuv it would use io_uring, which no checkpoint holds.

libuv serves many clients better, so large jobs keep it; there a capture of rank 0 says what is in its way.
"""

from __future__ import annotations

import os

MANY_RANKS = 64


def prefer_one_that_can_be_saved() -> None:
    """Before the process group is made. What the job chose itself stays."""
    world = os.environ.get("WORLD_SIZE", "1")
    launched = "TORCHELASTIC_RUN_ID" in os.environ  # torchrun keeps the store in its own process
    if not launched and world.isdigit() and int(world) < MANY_RANKS:
        os.environ.setdefault("USE_LIBUV", "0")
