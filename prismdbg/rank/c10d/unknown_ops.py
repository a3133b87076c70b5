"""Operators of `c10d::` that `model/ops.py` does not know, as a newer torch may have: they pass, and are noted once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from prismdbg.errors import FacilityError
from prismdbg.rank.c10d import schemas
from prismdbg.rank.c10d.kernels import BELOW

HINT = "use a newer prismdbg, or a torch that it knows"
Tell = Callable[[str, str], None]  # name, why it is not known

_library: torch.library.Library | None = None
_tell: Tell | None = None


def install(tell: Tell | None) -> None:
    """From now on `tell` is called before such an operator's first call; what it raises, the program raises."""
    global _library, _tell
    _tell = tell
    unknown = schemas.read().unknown if _library is None else {}
    if unknown:
        _library = torch.library.Library("c10d", "IMPL")
        for name, why in unknown.items():
            _library.impl(name, _kernel(name, why), "BackendSelect", with_keyset=True)


def refuse(name: str, why: str) -> None:
    """Where peers are virtual: nothing answers it."""
    raise FacilityError(f"the program calls c10d::{name}, which virtual peers cannot answer: {why}", hint=HINT)


def _kernel(name: str, why: str) -> Callable[..., Any]:
    operator = getattr(torch.ops.c10d, name).default
    told: set[Tell] = set()

    def kernel(keyset: Any, *args: Any, **named: Any) -> Any:
        if _tell is not None and _tell not in told:
            _tell(name, why)
            told.add(_tell)
        return operator.redispatch(keyset & BELOW, *args, **named)

    return kernel
