"""Amounts of memory as people read them."""

from __future__ import annotations

import pytest

from prismdbg.model.sizes import size


@pytest.mark.parametrize(
    ("size_bytes", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (354_628_403, "338.2 MiB"),
        (3 << 40, "3.0 TiB"),
        (5 << 60, "5120.0 PiB"),
    ],
)
def test_a_size_has_the_unit_that_fits(size_bytes: int, said: str) -> None:
    assert size(size_bytes) == said
