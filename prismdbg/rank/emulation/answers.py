"""One collective that an emulated rank asks its peers, and what they answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from prismdbg.model.collective import Identity
from prismdbg.rank.c10d.call import Call
from prismdbg.settings.emulation import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """How it was answered, one of `synthesis.WAYS`.

    source: the sender of a receive from any. fill: to be called when it is waited for, because nobody said it yet.
    later: to be called by whoever carries it. like: mean and deviation of noise like the donor's.
    """

    how: str
    source: int = -1
    fill: Callable[[], None] | None = None
    later: Callable[[], None] | None = None
    like: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One collective to be answered, and the policy that holds for it."""

    call: Call
    identity: Identity
    axis: str
    policy: Policy
    members: list[int]
    outputs: list[torch.Tensor]
    inputs: list[torch.Tensor]
    can_be_later: bool = False
    meets: bool = False
