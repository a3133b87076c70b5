"""`state_dict` of a module of `fully_shard` (FSDP2) drops parameters that the program has gathered. The module's next
forward pass gathers them again, by a collective that other ranks may not issue."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MODULE = "torch.distributed.fsdp._fully_shard._fsdp_param_group"


class Gathered(Exception):
    """Parameters are gathered, and stay so."""


@contextmanager
def kept_gathered() -> Iterator[None]:
    """What would drop gathered parameters in this thread raises `Gathered` in place of it, and so does the end of this:
    a program's own `state_dict` may handle exceptions."""
    module = sys.modules.get(_MODULE)
    if module is None:
        yield
        return
    kind: Any = module.FSDPParamGroup
    drop, thread, kept = kind._to_sharded, threading.get_ident(), []

    def keep(group: Any) -> None:
        if group.is_sharded or threading.get_ident() != thread:
            drop(group)
            return
        kept.append(group)
        raise Gathered

    try:
        kind._to_sharded = keep
        yield
    finally:
        kind._to_sharded = drop
        if kept:
            raise Gathered
