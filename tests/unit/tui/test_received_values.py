"""What a collective received, as the pane of values shows it: any numbers, of any bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capsules import make_capsule
from prismdbg_tui.session.recorded_call import BINS, received, summary
from prismdbg_tui.timeline.recording import Recording
from tiny_log import TinyLog

from prismdbg.log.columns import read_columns
from prismdbg.model.collective import TensorMeta


def described(values: list[Any], dtype: str) -> dict[str, Any]:
    return summary(np.array(values, dtype=dtype), TensorMeta((len(values),), dtype))


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1_754_000_000_000_000_000] * 3, "int64"),
        ([1_754_000_000_000_000_000, 1_754_000_000_000_000_300], "int64"),
        ([2**53, 2**53 + 2], "float64"),
        ([3.4e38] * 2, "float32"),
        ([1.0, 1.0 + 2**-52], "float64"),
        ([0.0, 5e-324], "float64"),
        ([7], "int8"),
    ],
)
def test_large_and_nearly_equal_values_have_a_histogram(values: list[Any], dtype: str) -> None:
    """Bins that are narrower than the distance of two floating-point numbers cannot be made."""
    histogram: Any = described(values, dtype)["histogram"]
    counts = histogram["counts"]
    assert len(counts) == BINS and sum(counts) == len(values)
    assert bool(counts[-1]) is (histogram["high"] > histogram["low"])


def test_bins_are_equally_wide() -> None:
    histogram: Any = described(list(range(BINS)), "int32")["histogram"]
    assert histogram == {"low": 0.0, "high": BINS - 1.0, "counts": [1] * BINS}


def test_a_range_that_no_number_holds_has_no_histogram() -> None:
    found: Any = described([-1.7e308, 1.7e308, 1.7e308], "float64")
    assert found["histogram"] is None and found["stats"]["max"] == 1.7e308


@pytest.mark.parametrize(("dtype", "size"), [("bfloat16", 3), ("bfloat16", 6), ("float32", 7)])
def test_a_tensor_that_is_not_all_there_is_not_decoded(tmp_path: Path, dtype: str, size: int) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    shutil.rmtree(capsule.log)
    log = TinyLog(capsule.log)
    log.complete(log.issue(0, 1, outputs=(TensorMeta((4,), dtype),)), bytes(size))
    recording = Recording(capsule, read_columns(capsule.log))
    (view,) = received(recording, 0)
    assert "not decoded" in str(view.value["text"])
