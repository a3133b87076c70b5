"""Which world the program is in: it may destroy all process groups and begin again. torch counts the names of groups
from 0 then, so the log has other names for later groups: `0~2` for the `0` of the second world. A rank of another
process that has destroyed its groups as often gives them the same names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from prismdbg.rank.program.not_compiled import not_compiled

_suffix = ""
_number = 1


def name_of(group: Any) -> str:
    """As the log has it."""
    name: str = group.group_name
    return name + _suffix if _suffix else name


def follow(begun: Callable[[str], None] = lambda _: None) -> None:
    """`begun`: is told what names end with from here on."""
    original = dist.destroy_process_group

    @not_compiled
    @functools.wraps(original)
    def destroy_process_group(*args: Any, **named: Any) -> Any:
        was_there = dist.is_initialized()
        try:
            return original(*args, **named)
        finally:
            if was_there and not dist.is_initialized():
                _begin(begun)

    for module in (dist, c10d):
        module.destroy_process_group = destroy_process_group


def _begin(begun: Callable[[str], None]) -> None:
    global _suffix, _number
    _number += 1
    _suffix = f"~{_number}"
    begun(_suffix)
