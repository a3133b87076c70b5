"""Long lines in the console."""

from __future__ import annotations

from prismdbg_tui.drawing.wrapping import wrapped


def test_a_printed_array_keeps_its_columns() -> None:
    row = "  [" + "  ".join(f"{number:>11}" for number in (float("nan"), 1.5, -2.25, 1e-3, 7))
    assert wrapped(row, 45) == [
        "  [        nan          1.5        -2.25",
        "         0.001            7",
    ]


def test_a_name_stays_with_its_value() -> None:
    assert wrapped("  min 1.5  max 2.25  nan 1  inf 0", 31) == ["  min 1.5  max 2.25  nan 1", "  inf 0"]


def test_a_sentence_goes_on_below_its_beginning() -> None:
    assert wrapped("    raised at train.py:12 in forward of it", 30) == [
        "    raised at train.py:12 in",
        "    forward of it",
    ]
    assert wrapped("short", 30) == ["short"]
    assert wrapped("", 30) == [""]


def test_a_word_that_is_too_long_stays_whole_and_nothing_is_lost() -> None:
    path = "/a/very/long/path/" * 4
    assert wrapped(f"  at {path} in main", 30) == ["  at", f"  {path}", "  in main"]
    assert "".join(wrapped(" ".join("abc" for _ in range(40)), 9)).replace(" ", "") == "abc" * 40
