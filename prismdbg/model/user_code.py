"""Folders and files that the user names as their own code (`--user-code`), as stacks write them. One set a process."""

from __future__ import annotations

_paths: tuple[str, ...] = ()


def use(paths: tuple[str, ...]) -> None:
    """Absolute paths; none: the usual rule of `model/frame.py` holds alone."""
    global _paths
    _paths = tuple(path.rstrip("/") for path in paths)


def paths() -> tuple[str, ...]:
    return _paths


def holds(filename: str) -> bool:
    return any(filename == path or filename.startswith(path + "/") for path in _paths)
