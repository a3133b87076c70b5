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

_MAKES_IT = "_update_default_pg"  # torch's own modules hold `init_process_group` itself
_ENDS_IT = ("destroy_process_group", "_abort_process_group")  # the world, where no group is given

_suffix = ""
_number = 1


def name_of(group: Any) -> str:
    """As the log has it."""
    name: str = group.group_name
    return name + _suffix if _suffix else name


def torch_name(name: str) -> str:
    """Of a group of this world, by its name in the log."""
    return name.removesuffix(_suffix) if _suffix else name


def follow(begun: Callable[[str], None] = lambda _: None, made: Callable[[], None] = lambda: None) -> None:
    """`begun`: is told what names end with from here on. made: is called when there is a default process group."""
    if (original := getattr(c10d, _MAKES_IT, None)) is not None:
        setattr(c10d, _MAKES_IT, _telling(original, made))
    for name in _ENDS_IT:
        original = getattr(c10d, name, None)
        if original is not None:
            followed = _followed(original, begun)
            for module in (dist, c10d):
                if getattr(module, name, None) is original:
                    setattr(module, name, followed)


def _telling(original: Callable[..., Any], made: Callable[[], None]) -> Callable[..., Any]:
    @not_compiled
    @functools.wraps(original)
    def telling(*args: Any, **named: Any) -> Any:
        answer = original(*args, **named)
        if dist.is_initialized():
            made()
        return answer

    return telling


def _followed(original: Callable[..., Any], begun: Callable[[str], None]) -> Callable[..., Any]:
    @not_compiled
    @functools.wraps(original)
    def followed(*args: Any, **named: Any) -> Any:
        was_there = dist.is_initialized()
        try:
            return original(*args, **named)
        finally:
            if was_there and not dist.is_initialized():
                _begin(begun)

    return followed


def _begin(begun: Callable[[str], None]) -> None:
    global _suffix, _number
    _number += 1
    _suffix = f"~{_number}"
    begun(_suffix)
