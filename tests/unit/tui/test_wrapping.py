"""Long lines in the console."""

from __future__ import annotations

import pytest
from prismdbg_tui.drawing.figures import clauses, cut_words, first_fitting, fitted_table
from prismdbg_tui.drawing.wrapping import cut_words as cut_text
from prismdbg_tui.drawing.wrapping import wrapped
from rich.cells import cell_len
from rich.text import Text


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


def test_words_are_left_out_whole() -> None:
    assert cut_words("rank 2 sends, at 11.1", 21) == "rank 2 sends, at 11.1"
    assert cut_words("rank 2 sends, at 11.1", 17) == "rank 2 sends …"
    assert cut_words("rank 2 sends, at 11.1", 13) == "rank 2 …"
    assert cut_words("aten::_log_softmax_backward_data", 10) == "aten::_lo…"
    assert first_fitting(("rank 2 sends, at 11.1", "rank 2 sends"), 12) == "rank 2 sends"
    assert first_fitting(("rank 2 sends, at 11.1", "rank 2 sends"), 10) == "rank 2 …"


def test_words_are_left_out_in_their_colours() -> None:
    text = Text().append("rank 2 ", "bold").append("sends, at 11.1", "red")
    assert cut_text(text, 30) == text
    for width in range(1, 22):
        shown = cut_text(text, width)
        assert shown.plain == cut_words(text.plain, width)
        assert shown.plain[:1] in ("r", "…") and (width < 9 or shown.spans[0].style == "bold")


def test_a_clause_is_left_out_before_a_word() -> None:
    text = "the first NaN was produced by aten::log; first sent at 11.1; at train.py:7"
    assert [len(each) for each in clauses(text)] == [74, 61, 41]
    assert first_fitting(clauses(text), 61).endswith("; first sent at 11.1 …")
    assert first_fitting(clauses(text), 50) == "the first NaN was produced by aten::log …", (
        "one sees that there is more"
    )
    assert first_fitting(clauses(text), 30) == "the first NaN was produced …"
    assert list(clauses("")) == []


STACKS = """\
     size  blocks  of
  1.0 MiB       4  /opt/train/model.py:53 in forward < model.py:67 < model.py:84 < train.py:34 < train.py:67
535.0 KiB      38  /opt/train/train.py:61 in main < train.py:76
      4 B       1  aten::empty"""


@pytest.mark.parametrize("width", [48, 60, 80, 200])
def test_each_row_of_a_table_has_one_line(width: int) -> None:
    """Folders go first, in all rows, then frames in the middle of a stack."""
    rows = fitted_table(STACKS, width).split("\n")
    assert all(cell_len(row) <= width for row in rows) and len(rows) == 4
    assert rows[0] == STACKS.split("\n")[0] and rows[3] == "      4 B       1  aten::empty"
    assert rows[1].startswith("  1.0 MiB       4  ") and rows[1].endswith("train.py:67")
    assert ("/opt/train/" in rows[2]) == ("/opt/train/" in rows[1]) == (width == 200) and ("…" in rows[1]) == (
        width < 200
    )
