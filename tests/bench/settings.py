"""How much is measured: enough to be believed, or just enough to see that it works."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`rounds` hold one block of every mode; of each block's steps the first `dropped_steps` do not count.

    data: the folder of measured figures that `predict` is held against; the project has none of them.
    kept_sweeps: the folder in which `sweeps` and `searches` continue what they began.
    """

    size: str = "6m"
    batch: int = 8
    rounds: int = 20
    block_steps: int = 12
    dropped_steps: int = 3
    call_rounds: int = 15
    job_rounds: int = 5
    job_steps: int = 40
    captures: int = 10
    checkpoint_every: int = 20
    checkpoint_steps: int = 120
    checkpoint_rounds: int = 2
    state_every: int = 50
    state_steps: int = 280
    capsule_steps: int = 10
    replays: int = 5
    cold_starts: int = 2
    unseeded_jobs: int = 5
    debugged_steps: int = 200
    ways_back: int = 3
    paced_size: str = "1m"
    paced_pairs: int = 20
    paced_steps: int = 60
    paced_passes: int = 4
    kinds: tuple[str, ...] = ()
    kind_pairs: int = 10
    here_rounds: int = 3
    here_steps: int = 13
    sweep_rounds: int = 60
    sweep_bound_s: float = 150.0
    kept_sweeps: Path | None = None
    sweep_steps: int = 10
    search_budget_s: float = 40.0
    long_log: int = 1_000_000
    many_ranks: int = 1024
    late_runs: int = 20
    late_steps: int = 40
    data: Path | None = None


FULL = Settings()
QUICK = Settings(
    size="1m",
    rounds=2,
    block_steps=5,
    dropped_steps=1,
    call_rounds=3,
    job_rounds=1,
    job_steps=10,
    captures=2,
    checkpoint_every=10,
    checkpoint_steps=40,
    checkpoint_rounds=1,
    state_every=5,
    state_steps=28,
    capsule_steps=4,
    replays=2,
    cold_starts=1,
    unseeded_jobs=1,
    debugged_steps=20,
    ways_back=1,
    paced_pairs=2,
    paced_steps=12,
    paced_passes=1,
    kind_pairs=1,
    many_ranks=32,
    here_rounds=1,
    here_steps=6,
    sweep_rounds=2,
    sweep_bound_s=30.0,
    sweep_steps=6,
    search_budget_s=30.0,
    long_log=10_000,
    late_runs=1,
    late_steps=20,
)
