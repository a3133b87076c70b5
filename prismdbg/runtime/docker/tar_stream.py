"""A tar archive as it is written: gigabytes go from the files to Docker without lying on the disk in between."""

from __future__ import annotations

import os
import tarfile
import threading
from collections.abc import Callable, Iterator

from prismdbg.errors import FacilityError, PrismError

_CHUNK_BYTES = 1 << 20


def stream(write: Callable[[tarfile.TarFile], None]) -> Iterator[bytes]:
    """What `write` adds. A reader that stops early ends the writer, too."""
    reading, writing = os.pipe()
    failure: list[BaseException] = []

    def run() -> None:
        try:
            with (
                os.fdopen(writing, "wb") as pipe,
                tarfile.open(fileobj=pipe, mode="w|", format=tarfile.PAX_FORMAT) as tar,
            ):
                write(tar)
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="prismdbg-tar", daemon=True)
    thread.start()
    try:
        with os.fdopen(reading, "rb") as pipe:
            while chunk := pipe.read(_CHUNK_BYTES):
                yield chunk
    finally:
        thread.join()
    if failure:
        raise _as_ours(failure[0]) from failure[0]


def _as_ours(error: BaseException) -> BaseException:
    if isinstance(error, OSError):
        return FacilityError(
            f"the container image could not be built: {error}", hint="try again: a file changed during the build"
        )
    return error if isinstance(error, PrismError) else FacilityError(f"the container image could not be built: {error}")
