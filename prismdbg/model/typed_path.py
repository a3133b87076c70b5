"""A path as somebody typed it."""

from __future__ import annotations

from pathlib import Path


def typed_path(text: str) -> Path:
    """`~` and `~user` are replaced by homes; `~` of a user who does not exist stays as it is, like in a shell."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
