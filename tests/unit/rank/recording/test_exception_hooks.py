"""What is noted of an exception that nothing caught: enough to tell it, and never more than a log's record holds."""

from __future__ import annotations

import json

import pytest

from prismdbg.capsule.log_format import EVENT_SEGMENT_BYTES
from prismdbg.rank.recording import exception_hooks
from prismdbg.rank.recording.exception_hooks import MOST_LINES, MOST_TEXT, describe


def caught(error: Exception) -> Exception:
    try:
        raise error
    except Exception as raised:
        return raised


def deep(frames: int) -> None:
    return wide(frames) if frames else None


def wide(frames: int) -> None:  # two functions in turn: Python folds a call that is repeated
    if frames <= 1:
        raise ValueError("at the bottom")
    deep(frames - 1)


@pytest.mark.parametrize("text", ["weights " * 400_000, "\U0001f525" * 3_000_000])
def test_an_exception_with_a_text_of_megabytes_fits_into_the_log(text: str) -> None:
    told = describe(caught(RuntimeError(text)))
    assert told["text"].startswith(text[:1000]) and told["text"].endswith(f"... (of {len(text)} characters)")
    assert told["traceback"][-1].startswith("RuntimeError: ")
    assert len(json.dumps(told)) < EVENT_SEGMENT_BYTES // 2 - 1000


def test_of_a_deep_stack_the_innermost_frames_are_noted() -> None:
    with pytest.raises(ValueError, match="at the bottom") as raised:
        deep(300)
    told = describe(raised.value)
    assert len(told["traceback"]) == MOST_LINES
    assert told["traceback"][-1] == "ValueError: at the bottom\n" and "in wide" in told["traceback"][-2]


def test_a_secret_at_the_end_of_what_is_kept_is_hidden_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    token = "hf_" + "a1" * 20
    text = "x " * ((MOST_TEXT - 20) // 2) + token + " y" * MOST_TEXT
    monkeypatch.setattr(exception_hooks.sys, "orig_argv", ["python", "train.py"])
    told = describe(caught(RuntimeError(text)))
    assert "hf_" not in told["text"] and "hf_" not in "".join(told["traceback"])


def test_a_text_that_fits_is_noted_as_it_is() -> None:
    assert describe(caught(RuntimeError("x" * MOST_TEXT)))["text"] == "x" * MOST_TEXT
