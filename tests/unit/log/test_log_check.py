"""A hostile log is found by its columns: what cannot be decoded one by one is refused without doing so."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_log import write_training

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.reader import read_log
from prismdbg.errors import CapsuleError
from prismdbg.log.log_check import read_checked


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The only one with events, of a log of six collectives."""
    folder = tmp_path_factory.mktemp("log")
    write_training(folder)
    return folder / fmt.event_segment(0)


def is_refused(folder: Path) -> bool:
    try:
        read_log(folder)
    except CapsuleError:
        return True
    return False


@settings(max_examples=400)
@given(st.data())
def test_what_cannot_be_decoded_is_refused(segment: Path, data: st.DataObject) -> None:
    content = segment.read_bytes()
    written = len(content.rstrip(b"\0"))
    place = data.draw(st.integers(0, written - 1))
    new = data.draw(st.sampled_from([b"\0", b"\xff", b"\x7f", b"\x80", b"\1", b"\0" * 8, b"\xff" * 8]))
    segment.write_bytes(content[:place] + new + content[place + len(new) :])
    try:
        if is_refused(segment.parent):
            with pytest.raises(CapsuleError):
                read_checked(segment.parent)
        else:
            read_checked_or_refused(segment.parent)
    finally:
        segment.write_bytes(content)


def read_checked_or_refused(folder: Path) -> None:
    """It may be stricter, but ends in no other way."""
    try:
        read_checked(folder)
    except CapsuleError as error:
        assert "damaged" in str(error)
