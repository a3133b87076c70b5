"""Long lines in the console."""

from __future__ import annotations

from prismdbg_tui.drawing.figures import clauses, cut_words, first_fitting
from prismdbg_tui.drawing.wrapping import cut_words as cut_text
from prismdbg_tui.drawing.wrapping import wrapped
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
    assert [len(each) for each in clauses(text)] == [74, 59, 39]
    assert first_fitting(clauses(text), 60).endswith("; first sent at 11.1")
    assert first_fitting(clauses(text), 50) == "the first NaN was produced by aten::log"
    assert first_fitting(clauses(text), 30) == "the first NaN was produced …"
    assert list(clauses("")) == []
