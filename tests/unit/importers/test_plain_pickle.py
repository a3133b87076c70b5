"""Pickles of plain data are read as Python reads them; one that asks for anything else is refused, and nothing runs."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.errors import CapsuleError
from prismdbg.importers import plain_pickle
from prismdbg.importers.plain_pickle import read_pickle

LEAVES = st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False) | st.text(max_size=300)


def values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=9), inner),
        max_leaves=40,
    )


VALUES = values(LEAVES | st.binary(max_size=300))


@given(value=values(LEAVES))
def test_plain_data_is_what_torch_writes(value: Any) -> None:
    """In protocol 2, in which Python has bytes made by a call."""
    assert read_pickle(pickle.dumps(value, 2), "dump") == value


@given(value=VALUES, protocol=st.integers(3, 5))
def test_plain_data_is_what_python_reads(value: Any, protocol: int) -> None:
    assert read_pickle(pickle.dumps(value, protocol), "dump") == value


class Attack:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_what_a_pickle_calls_is_not_called(tmp_path: Any, protocol: int) -> None:
    made = tmp_path / "made"
    with pytest.raises(CapsuleError, match=r"^dump does not contain a pickle of plain data"):
        read_pickle(pickle.dumps({"entries": [Attack(str(made))]}, protocol), "dump")
    assert not made.exists()


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_value_or_an_error(data: bytes) -> None:
    try:
        read_pickle(data, "dump")
    except CapsuleError:
        pass


@given(value=VALUES, at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_damaged_pickle_is_a_value_or_an_error(value: Any, at: int, byte: int) -> None:
    data = bytearray(pickle.dumps(value, 4))
    data[at % len(data)] = byte
    for damaged in (bytes(data), bytes(data[: at % len(data)])):
        try:
            read_pickle(damaged, "dump")
        except CapsuleError:
            pass


def test_a_pickle_that_asks_for_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_pickle, "MOST_VALUES", 100)
    with pytest.raises(CapsuleError, match="more than 100 values"):
        read_pickle(b"\x80\x02(" + b"N" * 101 + b"t.", "dump")
    with pytest.raises(CapsuleError, match="ends at byte"):
        read_pickle(b"\x80\x02X\xff\xff\xff\xff", "dump")


_BEGIN = b"\x80\x02}X\x07\0\0\0versionX\x01\0\0\x001s"


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(b")" + b"".join(b"q%ch%c\x86" % (n, n) for n in range(60)), id="shared"),
        pytest.param(b")" + b"\x85" * 200_000, id="deep"),
        pytest.param(b"\x8a\x08" + bytes([255] * 7) + b"\x1f", id="number"),
        pytest.param(b"]", id="list"),
    ],
)
def test_only_texts_are_keys(tmp_path: Path, key: bytes) -> None:
    """Python hashes a key: in C, where nothing stops a value that takes for ever, or is deeper than the stack."""
    file = tmp_path / "dump"
    file.write_bytes(_BEGIN + key + b"Ns.")
    program = "import sys; from pathlib import Path; from prismdbg.importers.plain_pickle import read_pickle\n"
    program += "read_pickle(Path(sys.argv[1]).read_bytes(), 'dump', looks_once=True)"
    done = subprocess.run([sys.executable, "-c", program, file], capture_output=True, text=True, timeout=60)
    assert "CapsuleError: dump does not contain a pickle of plain data: a key of a dictionary is a " in done.stderr


def test_what_a_pickle_repeats_counts_each_time() -> None:
    """As often as a reader comes across it; not for one that looks at it once."""
    value: list[Any] = []
    for _ in range(24):
        value = [value, value]
    for data in (pickle.dumps(value), pickle.dumps([["a" * 30_000] * 50_000]), pickle.dumps([[[0] * 5000] * 5000])):
        with pytest.raises(CapsuleError, match="the same values are repeated too often"):
            read_pickle(data, "dump")
        assert isinstance(read_pickle(data, "dump", looks_once=True), list)


def test_stacks_of_frames_that_are_shared_are_read() -> None:
    """As torch writes them: each frame once, in lists of their own."""
    frames = [{"name": f"function_{n}", "filename": f"/v/{'long/' * 20}{n}.py", "line": n} for n in range(300)]
    told = [{"id": n, "frames": [frames[(n * 7 + at) % 300] for at in range(100)]} for n in range(2000)]
    assert read_pickle(pickle.dumps(told, 2), "dump") == told


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(b"]q\0(h\0e.", id="in itself"),
        pytest.param(b"]q\0](h\0h\0h\0eh\0K\1a\x86.", id="later"),
        pytest.param(b"}q\0](h\0h\0eh\0X\1\0\0\0aK\1s\x86.", id="dictionary"),
    ],
)
def test_what_is_part_of_something_does_not_grow(steps: bytes) -> None:
    """What it grows by would not be counted."""
    with pytest.raises(CapsuleError, match="a value that another one refers to is changed"):
        read_pickle(b"\x80\2" + steps, "dump")


def test_a_key_does_not_occur_twice() -> None:
    with pytest.raises(CapsuleError, match="a key of a dictionary occurs twice"):
        read_pickle(b"\x80\2}(X\1\0\0\0aK\1X\1\0\0\0aK\2u.", "dump")
