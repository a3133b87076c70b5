"""Where the files lie that prismdbg brings along and that are no modules of it: `images`, in a checkout, or in the
package once it is installed."""

from __future__ import annotations

from pathlib import Path


def shipped(name: str) -> Path:
    """A file or folder of `images`, such as `starter/starter.py`."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_images"
    return (installed if installed.is_dir() else package.parent / "images") / name
