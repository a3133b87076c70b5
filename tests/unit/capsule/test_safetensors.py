"""The safetensors format: what is laid is read again, and whatever else is read is one CapsuleError."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.capsule.safetensors import ITEM_BYTES, header_of, lay, read_header
from prismdbg.errors import CapsuleError

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
tensors = st.dictionaries(
    st.text("abc.0", min_size=1, max_size=6), st.tuples(st.sampled_from(sorted(ITEM_BYTES)), shapes)
)


def written(path: Path, fields: dict[str, Any], data: bytes) -> Path:
    text = json.dumps(fields).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@given(tensors)
def test_what_is_laid_is_read_again(tmp_path_factory: pytest.TempPathFactory, wanted: dict[str, Any]) -> None:
    parts = lay((name, dtype, shape) for name, (dtype, shape) in wanted.items())
    path = tmp_path_factory.mktemp("laid") / "t"
    header = header_of(parts)
    path.write_bytes(header + bytes(sum(part.size_bytes for part in parts)))
    found, begin = read_header(path)
    assert begin == len(header) and begin % 8 == 0
    assert {name: (part.dtype, part.shape) for name, part in found.items()} == wanted
    assert all(part.begin % ITEM_BYTES[part.dtype] == 0 for part in parts), "each is aligned"


def test_a_file_as_the_format_is_described() -> None:
    """The example of the format: one tensor of two by two, and its bytes."""
    (part,) = lay([("weight", "F16", (2, 2))])
    header = header_of([part])
    assert int.from_bytes(header[:8], "little") == len(header) - 8
    assert json.loads(header[8:]) == {"weight": {"dtype": "F16", "shape": [2, 2], "data_offsets": [0, 8]}}


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"a": GOOD | {"dtype": "OBJ"}}, "dtype is 'OBJ'"),
        ({"a": GOOD | {"shape": [-2]}}, "is not a shape"),
        ({"a": GOOD | {"shape": [1] * 65}}, "is not a shape"),
        ({"a": GOOD | {"shape": [2**40, 2**40]}}, "do not fit the shape"),
        ({"a": GOOD | {"data_offsets": [0, 4]}}, "do not fit the shape"),
        ({"a": GOOD | {"data_offsets": [8, 0]}}, "are not two offsets"),
        ({"a": GOOD | {"data_offsets": [4, 12]}}, "begins at 4, expected 0"),
        ({"a": GOOD, "b": GOOD}, "begins at 0, expected 8"),
        ({"a": GOOD, "b": GOOD | {"data_offsets": [8, 16]}}, "holds 8 bytes of tensors, expected 16"),
        ({}, "holds 8 bytes of tensors, expected 0"),
        ({"a": 7}, "must be an object"),
    ],
)
def test_a_header_that_does_not_fit_its_file_is_refused(tmp_path: Path, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(CapsuleError, match=says.replace("[", "\\[")):
        read_header(written(tmp_path / "t", fields, bytes(8)))


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\x10" + bytes(7), (2**63).to_bytes(8, "little") + b"{}"])
def test_a_length_that_is_none_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(CapsuleError, match="has no safetensors header"):
        read_header(tmp_path / "t")


def test_items_are_as_wide_as_torch_has_them() -> None:
    from prismdbg.rank.recording.plain_state import DTYPES

    assert {name: dtype.itemsize for name, dtype in DTYPES.items()} == ITEM_BYTES
    assert math.prod(()) == 1, "a tensor without dimensions has one value"
