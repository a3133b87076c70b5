"""Changes to a job as people write them: `617=1.3`, `fabric=2`, `* mlp=0.5`, `617=5 ms`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from prismdbg.errors import UsageError
from prismdbg.simulate import quantities
from prismdbg.simulate.engine.changes import Changes, Delay

T = TypeVar("T")


def changes(
    slow_ranks: Sequence[str],
    slow_links: Sequence[str],
    tiers: Sequence[str],
    kernels: Sequence[str],
    delays: Sequence[str],
) -> Changes:
    return Changes(
        compute_ppm=dict(_pair(text, _rank, quantities.factor_ppm) for text in slow_ranks),
        link_ppm=dict(_pair(text, _rank, quantities.factor_ppm) for text in slow_links),
        tier_ppm=dict(_pair(text, str, quantities.factor_ppm) for text in tiers),
        kernel_ppm=dict(_pair(text, str, quantities.factor_ppm) for text in kernels),
        delays=tuple(
            Delay(rank=rank, delay_ns=delay_ns)
            for rank, delay_ns in (_pair(text, _rank, quantities.time_ns) for text in delays)
        ),
    )


def sizes(texts: Sequence[str]) -> list[tuple[str, int]]:
    """`dp=512`."""
    return [_pair(text, str, _count, "dp=512") for text in texts]


def _pair(
    text: str, of_name: Callable[[str], T], of_value: Callable[[str], int], example: str = "617=1.3"
) -> tuple[T, int]:
    name, equals, value = text.rpartition("=")
    if not equals:
        raise UsageError(f"{text!r} has no =", hint=f"write NAME=VALUE, as in {example}")
    try:
        return of_name(name.strip()), of_value(value)
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}", hint=f"write NAME=VALUE, as in {example}") from error


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 9 and int(text)):
        raise ValueError(f"{text!r} is not a number of ranks")
    return int(text)


def _rank(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 9):
        raise ValueError(f"{text!r} is not a rank")
    return int(text)
