"""What random generators begin with: which ones, and made from a number."""

from __future__ import annotations

from typing import Any

WANTED = "PRISMDBG_SEEDS"  # in a replay: the configuration holds them; for the first process alone
MODULES = ("random", "numpy.random", "torch")
UNSEEDED = (
    "unseeded"  # beside modules: what generators without a seed follow from (`rank/recording/inputs/unseeded.py`)
)
Seed = Any  # of torch and of what is unseeded a number; else the words of the generator's state


def of_number(number: int) -> dict[str, Seed]:
    """Made from a number, for a program that has none to be put back."""
    from random import Random

    generator = Random(number)
    words = list(generator.getstate()[1])
    torch = generator.getrandbits(63)
    return {"torch": torch, "random": words, "numpy.random": words, UNSEEDED: generator.getrandbits(128)}
