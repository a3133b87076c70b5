"""The state of every random generator that a program has without asking for one, as plain JSON, and back."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

Json = dict[str, Any]


def read() -> Json:
    """Of torch (on every device), `random`, and numpy where the program has imported it."""
    version, words, gauss = random.getstate()
    found: Json = {"torch": _hex(torch.get_rng_state()), "random": [version, list(words), gauss]}
    if torch.cuda.is_initialized():
        found["cuda"] = [_hex(state) for state in torch.cuda.get_rng_state_all()]
    if (numpy := sys.modules.get("numpy.random")) is not None:
        name, keys, *rest = numpy.get_state()
        found["numpy"] = [str(name), keys.tolist(), *rest]
    return found


def put_back(state: Json) -> None:
    torch.set_rng_state(_tensor(state["torch"]))
    version, words, gauss = state["random"]
    random.setstate((version, tuple(words), gauss))
    if "cuda" in state and torch.cuda.is_available():
        for number, text in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(_tensor(text), number)
    if "numpy" in state and (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.set_state(tuple(state["numpy"]))


def _hex(state: torch.Tensor) -> str:
    return bytes(state.tolist()).hex()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8).clone()
