"""Messages on a stream, cut anywhere; what is no message, and what ends the stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.dap.framing import BrokenStream, MessageReader, NotAMessage, encoded


def reader(*pieces: bytes) -> MessageReader:
    left = [piece for piece in pieces if piece]
    return MessageReader(lambda _: left.pop(0) if left else b"")


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53)), max_size=4), st.integers(1, 40))
def test_messages_come_as_they_were_sent_in_pieces_of_any_size(messages: list[dict[str, object]], size: int) -> None:
    data = b"".join(map(encoded, messages))
    read = reader(*(data[start : start + size] for start in range(0, len(data), size)))
    assert [read.next() for _ in messages] == messages
    assert read.next() is None


def test_a_header_has_a_blank_after_its_colon() -> None:
    """Microsoft's DebugClient finds no length without it, and waits."""
    assert encoded({}) == b"Content-Length: 2\r\n\r\n{}"


def test_a_header_may_have_further_lines() -> None:
    read = reader(b"Content-Type: utf-8\r\ncontent-length:  2\r\n\r\n{}", encoded({"seq": 1}))
    assert read.next() == {} and read.next() == {"seq": 1}


def test_the_end_in_the_middle_of_a_message_is_the_end() -> None:
    assert reader(b"Content-Len").next() is None
    assert reader(b"Content-Length: 10\r\n\r\n{}").next() is None


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'{"a": NaN}', b"[" * 100 + b"]" * 100, b'"text"'])
def test_the_next_message_can_be_read_after_one_that_cannot(body: bytes) -> None:
    read = reader(b"Content-Length: %d\r\n\r\n" % len(body) + body, encoded({"seq": 2}))
    with pytest.raises(NotAMessage):
        read.next()
    assert read.next() == {"seq": 2}


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", b"Content-Length: -1\r\n\r\n", b"Content-Length: 99999999999\r\n\r\n", b"x" * 9000],
)
def test_what_is_no_header_ends_the_stream(data: bytes) -> None:
    with pytest.raises(BrokenStream):
        reader(data).next()
