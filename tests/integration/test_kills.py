"""A part of `make kills`: whoever is killed at a random moment loses nothing that was complete and leaves nothing."""

from __future__ import annotations

import random
from pathlib import Path

import kills
import pytest

pytestmark = [pytest.mark.job, pytest.mark.criu]


def test_killed_at_random_moments(tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    with kills.world_of(tmp_path, seed) as world:
        for name in ("rank", "capture", "replay", "everything", "debug", "supervisor"):
            print(f"killing: {name}")
            kills.KILLS[name](world)
