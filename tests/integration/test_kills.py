"""A part of `make kills`: whoever is killed at a random moment loses nothing that was complete and leaves nothing."""

from __future__ import annotations

from pathlib import Path

import kills
import pytest

pytestmark = [pytest.mark.job, pytest.mark.criu]

SEED = 20  # `python tests/kills.py 8 --seed 20` kills at the same moments


def test_killed_at_random_moments(tmp_path: Path) -> None:
    with kills.world_of(tmp_path, SEED) as world:
        for name, kill in kills.KILLS.items():
            print(f"killing: {name}")
            kill(world)


@pytest.mark.docker
def test_killed_in_a_container_at_random_moments(tmp_path: Path) -> None:
    with kills.world_of(tmp_path, SEED, in_docker=True) as world:
        for name, kill in kills.DOCKER_KILLS.items():
            print(f"killing: {name}")
            kill(world)
