"""A real browser without a window, for tests of pages; without one they are skipped, with a reason."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from waiting import wait_for

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "headless_shell")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(BROWSERS)} is installed")


@contextmanager
def browser(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """All that it writes is in a folder of its own, which is removed, and its processes end with the block.

    Its sockets are there, too, so the folder's path has to be short: pytest's own are not."""
    assert BROWSER is not None
    home = Path(tempfile.mkdtemp(prefix="browser-"))
    folders = {"HOME": home, "TMPDIR": home, "XDG_CONFIG_HOME": home / "config", "XDG_CACHE_HOME": home / "cache"}
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        f"--user-data-dir={home / 'profile'}", *arguments,
    ]  # fmt: skip
    try:
        started = subprocess.Popen(
            command,
            env=os.environ | {name: str(folder) for name, folder in folders.items()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with started:
            try:
                yield started
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)
    finally:
        # Its crash handlers are in sessions of their own: they end when they see that it is gone, and write until then.
        wait_for(lambda: not processes_of(home), 60, "the end of all processes of the browser")
        shutil.rmtree(home)


def processes_of(home: Path) -> list[int]:
    """Those that have this HOME."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if f"HOME={home}".encode() in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
    return found
