"""A donor value: what one rank sent while it ran, for a rank that receives it when it runs; and what it is found by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DonorValue:
    """`size_bytes` of 0 with statistics: the value itself was not kept. `file`: in the folder, or absolute.

    like: the same for every group over the same axes; a rank run for its values only is content with such a one.
    """

    key: str
    rank: int
    like: str = ""
    file: str = ""
    offset: int = 0
    size_bytes: int = 0
    mean: float | None = None
    deviation: float | None = None


def store_key(name: str) -> str:
    return f"store|{name}"


def collective_key(group: str, seq: int) -> str:
    return f"{group}|{seq}"


def sent_key(group: str, source: int, target: int, tag: int, nth: int) -> str:
    """Of a point-to-point transfer, by ranks in the group."""
    return f"{group}|{source}>{target}|{tag}|{nth}"


def earlier_key(key: str) -> str:
    """Of a value that was kept under `key` in an emulation before this one."""
    return f"~{key}"


def similar_key(axis: str, label: str, seq: int, offset: int = 0) -> str:
    """What another run's value is for. `offset`: of a transfer, how far the source is from the receiver."""
    return f"~{axis}|{label}|{seq}|{offset}"


def received_key(similar: str, rank: int) -> str:
    """What that very rank of another run received, which had as many ranks."""
    return f"{similar}@{rank}"
