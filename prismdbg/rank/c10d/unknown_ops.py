"""What communicates and is not recorded passes, and is noted once: operators of `c10d::` that `model/ops.py` does not
know, as a newer torch may have, and symmetric memory, through which operators exchange data without a call of a group.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._C import _distributed_c10d

from prismdbg.errors import FacilityError
from prismdbg.rank.c10d import schemas
from prismdbg.rank.c10d.kernels import BELOW
from prismdbg.rank.program.not_compiled import not_compiled

HINT = "use a newer prismdbg, or a torch that it knows"
_SYMMETRIC = "symmetric_memory"
_SYMMETRIC_WHY = "ranks exchange data through symmetric memory past the collectives"
_SYMMETRIC_HINT = "run the program without symmetric memory (asynchronous tensor parallelism)"
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
    _watch_symmetric_memory()


def refuse(name: str, why: str) -> None:
    """Where peers are virtual: nothing answers it."""
    is_symmetric = name.startswith(f"{_SYMMETRIC}::")
    called = f"{name.partition('::')[2]} of torch's symmetric memory" if is_symmetric else f"c10d::{name}"
    raise FacilityError(
        f"the program calls {called}, which virtual peers cannot answer: {why}",
        hint=_SYMMETRIC_HINT if is_symmetric else HINT,
    )


def _kernel(name: str, why: str) -> Callable[..., Any]:
    operator = getattr(torch.ops.c10d, name).default
    tell = _teller(name, why)

    def kernel(keyset: Any, *args: Any, **named: Any) -> Any:
        tell()
        return operator.redispatch(keyset & BELOW, *args, **named)

    return kernel


@cache
def _watch_symmetric_memory() -> None:
    """Where it is allocated and where ranks meet: one of both comes before all that uses it. Meeting, C++ asks the
    group's store, in which a rank alone finds nobody until a timeout."""
    memory = getattr(_distributed_c10d, "_SymmetricMemory", None)
    for name in ("empty_strided_p2p", "rendezvous"):
        if function := getattr(memory, name, None):
            setattr(memory, name, staticmethod(_told_first(name, function)))


def _told_first(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    tell = _teller(f"{_SYMMETRIC}::{name}", _SYMMETRIC_WHY)

    @not_compiled
    def called(*args: Any, **named: Any) -> Any:
        tell()
        return function(*args, **named)

    return called


def _teller(name: str, why: str) -> Callable[[], None]:
    told: set[Tell] = set()

    def tell() -> None:
        if _tell is not None and _tell not in told:
            _tell(name, why)
            told.add(_tell)

    return tell
