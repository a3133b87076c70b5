"""What a prediction says of its model."""

from __future__ import annotations

import pytest

from prismdbg.render.prediction_text import parameters


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (8_030_000_000, "8.03 billion parameters"),
        (124_000_000, "0.12 billion parameters"),
        (3_270_000, "3.27 million parameters"),
        (40_000, "0.04 million parameters"),
    ],
)
def test_a_small_model_has_parameters(number: int, text: str) -> None:
    assert parameters(number) == text
