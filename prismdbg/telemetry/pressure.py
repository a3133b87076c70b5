"""Pressure stall information, as the kernel writes it for the machine and for control groups
(Documentation/accounting/psi.rst)."""

from __future__ import annotations


def stalled_ns(text: bytes) -> dict[str, int]:
    """In all, by share: `some` of the threads waited, `full`: and no other one ran. `ValueError` where that is no such
    text."""
    rows = (line.split() for line in text.decode().splitlines())
    return {share: _total_us(pairs) * 1000 for share, *pairs in rows}


def _total_us(pairs: list[str]) -> int:
    return int(dict(pair.split("=") for pair in pairs)["total"])
