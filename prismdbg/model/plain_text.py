"""Text that came from a capsule or a rank, made fit to be shown."""

from __future__ import annotations


def plain(text: str) -> str:
    """It may not steer the terminal: what cannot be printed becomes a replacement character; newlines stay."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def one_line(text: str) -> str:
    """Of a name or a message inside a sentence of ours: a line break in it would let it begin a line as we do."""
    return " ".join(text.splitlines())
