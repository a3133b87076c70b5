"""What the rank writes as JSON, whatever a program puts into its texts, is what a reader accepts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.capsule import json_text
from prismdbg.model import shapes

HALF, OTHER_HALF, OF_A_PATH = "\ud83d", "\ude00", "\udc80"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (f"great {HALF}", "great \ufffd"),
        (f"{OTHER_HALF} first", "\ufffd first"),
        (f"{OTHER_HALF}{HALF}", "\ufffd\ufffd"),
        ("\U0001f600", "\U0001f600"),
        (f"/data/{OF_A_PATH}", f"/data/{OF_A_PATH}"),
        ("C:\\ud83d", "C:\\ud83d"),
    ],
)
def test_only_half_a_character_is_replaced(text: str, written: str) -> None:
    assert json.loads(json_text.dump({text: [text, {"a": (text, 1)}]})) == {written: [written, {"a": [written, 1]}]}


@given(st.recursive(st.text(st.characters(codec=None)) | st.integers(), lambda inner: st.lists(inner), max_leaves=5))
def test_every_text_is_accepted(value: Any) -> None:
    def texts(value: Any) -> list[str]:
        return (
            [t for inner in value for t in texts(inner)]
            if isinstance(value, list)
            else [value] * isinstance(value, str)
        )

    assert all(shapes.text(text) is not None for text in texts(json.loads(json_text.dump(value))))
