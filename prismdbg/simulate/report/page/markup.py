"""Tags with escaped contents, and pictures as text. What stands in a graph came from somebody's program."""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_VOID = frozenset({"img", "input"})


class Markup(str):
    """Text that is markup already; all else is escaped."""


def tag(name: str, /, *content: str | Markup, **attributes: object) -> Markup:
    """`class_` for `class`, `data_x` for `data-x`; None leaves an attribute out."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{named}>" + ("" if name in _VOID else f"{joined(*content)}</{name}>"))


def joined(*content: str | Markup) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else html.escape(part) for part in content))


def table(header: Sequence[str], rows: Sequence[Sequence[str | Markup]], *, right: Sequence[str] = ()) -> Markup:
    """`right`: names of number columns."""
    classes = ["number" if name in right else None for name in header]
    head = tag("tr", *(tag("th", name, class_=kind) for name, kind in zip(header, classes, strict=True)))
    body = (tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row, classes, strict=True))) for row in rows)
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="wide")


def bar(share: float, kind: str = "") -> Markup:
    """As long as the share of its cell."""
    return tag("span", class_=f"bar {kind}".strip(), style=f"width:{min(max(share, 0.0), 1.0) * 100:.2f}%")


def picture(indexes: NDArray[np.uint8], palette: Sequence[tuple[int, int, int]]) -> str:
    """A PNG of one pixel an index, as a data URI."""
    height, width = indexes.shape
    rows = np.concatenate([np.zeros((height, 1), dtype=np.uint8), indexes], axis=1)  # each row unfiltered

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    parts = (
        b"\x89PNG\r\n\x1a\n",
        chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        chunk(b"PLTE", bytes(value for colour in palette for value in colour)),
        chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
        chunk(b"IEND", b""),
    )
    return "data:image/png;base64," + base64.b64encode(b"".join(parts)).decode()
