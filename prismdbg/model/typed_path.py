"""A path as somebody typed it, and the folder that `~` means."""

from __future__ import annotations

from pathlib import Path


def typed_path(text: str) -> Path:
    """`~` and `~user` are replaced by homes; `~` of a user who does not exist stays as it is, like in a shell."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def home() -> Path:
    """The user's. The root folder where none is known: a container may run as a number that its list of users lacks."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
