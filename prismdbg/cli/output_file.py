"""A file that a command writes: whole or not at all, and one clear error where it cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prismdbg.errors import UsageError


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write; it becomes `path` when the block ends well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="give a file in a folder that may be written to",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
