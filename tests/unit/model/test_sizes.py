"""Amounts of memory as people read them."""

from __future__ import annotations

import pytest

from prismdbg.cli.options.param_types import size as on_the_command_line
from prismdbg.model.sizes import parse_size, size, unit_bytes
from prismdbg.simulate import quantities


@pytest.mark.parametrize(
    ("size_bytes", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_048_540, "1.0 MiB"),
        (354_628_403, "338.2 MiB"),
        (3 << 40, "3.0 TiB"),
        (5 << 60, "5120.0 PiB"),
    ],
)
def test_a_size_has_the_unit_that_fits(size_bytes: int, said: str) -> None:
    assert size(size_bytes) == said


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [
        ("80GB", 80 * 10**9),
        ("80 gb", 80 * 10**9),
        ("80GiB", 80 * 2**30),
        ("1.5GiB", 3 << 29),
        ("64 KiB", 64 << 10),
        ("1 kB", 1000),
        ("12 B", 12),
        ("2TB", 2 * 10**12),
    ],
)
def test_a_written_size_means_the_same_everywhere(written: str, size_bytes: int) -> None:
    assert parse_size(written) == on_the_command_line(written) == size_bytes
    unit = written.lstrip("0123456789. ")
    assert unit_bytes(unit) == parse_size(f"1{unit}")
    if unit in quantities.SIZES:
        assert quantities.size_bytes(written) == size_bytes


@pytest.mark.parametrize(("written", "size_bytes"), [("512M", 512 << 20), ("4g", 4 << 30), ("1000", 1000)])
def test_a_letter_alone_is_binary_and_a_bare_number_is_bytes(written: str, size_bytes: int) -> None:
    assert parse_size(written) == size_bytes


@pytest.mark.parametrize("written", ["", "GiB", "-1", "1e9", "12 Gib/s", "1.2.3", "9" * 20, "4 apples", "1PB"])
def test_what_is_no_size_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(written)
