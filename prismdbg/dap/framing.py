"""Messages of the Debug Adapter Protocol on a stream of bytes: `Content-Length`, an empty line, then JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from prismdbg.errors import PrismError, quoted
from prismdbg.protocol.wire import MAX_LINE_BYTES, InvalidMessage, Message, parse_line

MAX_HEADER_BYTES = 8 << 10
_END = b"\r\n\r\n"
_LENGTH = re.compile(r"content-length:\s*([0-9]{1,18})", re.IGNORECASE)


class NotAMessage(PrismError):
    """The JSON cannot be read, but the next message can."""


class BrokenStream(PrismError):
    """Where the next message begins is not known."""

    exit_code = 2


def encoded(message: Message) -> bytes:
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


class MessageReader:
    """`read` gives at least one byte, at most as many as asked for, and none at the end."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._buffer = bytearray()

    def next(self) -> Message | None:
        """The next message; None at the end of the stream, also in the middle of one."""
        while (end := self._buffer.find(_END)) < 0:
            if len(self._buffer) > MAX_HEADER_BYTES:
                raise BrokenStream(f"a header of more than {MAX_HEADER_BYTES} bytes", hint=_HINT)
            if not self._fill():
                return None
        length = _length_of(bytes(self._buffer[:end]))
        del self._buffer[: end + len(_END)]
        while len(self._buffer) < length:
            if not self._fill():
                return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        try:
            return parse_line(body)
        except InvalidMessage as error:
            raise NotAMessage(str(error)) from None

    def _fill(self) -> bool:
        data = self._read(1 << 16)
        self._buffer += data
        return bool(data)


_HINT = "run it from an editor: it speaks the Debug Adapter Protocol on standard input and output"


def _length_of(header: bytes) -> int:
    text = header.decode("ascii", "replace")
    for line in text.split("\r\n"):
        if found := _LENGTH.fullmatch(line.strip()):
            length = int(found.group(1))
            if length > MAX_LINE_BYTES:
                raise BrokenStream(f"a message of {length} bytes; at most {MAX_LINE_BYTES} are read", hint=_HINT)
            return length
    raise BrokenStream(f"a message without Content-Length: {quoted(text)}", hint=_HINT)
