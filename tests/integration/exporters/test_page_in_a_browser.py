"""The page for a ticket in a real browser: it is shown, without an error in the console, and no script in it runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from chain import prismdbg
from incident_run import HOSTILE, write_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "headless_shell")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(BROWSERS)} is installed")
SAID = re.compile(r":CONSOLE[:(].*")


def seen(page: Path) -> tuple[str, list[str]]:
    """The document as the browser has it, and what its console says."""
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={page.parent / 'profile'}",
        "--enable-logging=stderr", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, SAID.findall(ran.stderr)


def test_what_the_console_says_is_seen(tmp_path: Path) -> None:
    """Without this the next test could not fail."""
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><title>t</title><script>console.error('told'); document.title = 'ran'</script>")
    shown, said = seen(page)
    assert "<title>ran</title>" in shown and "told" in "".join(said)


def test_it_is_shown_and_nothing_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "run", HOSTILE + "<script>document.title = 'ran'</script>")
    page = tmp_path / "incident.html"
    assert prismdbg("report", tmp_path / "run", "-o", page).code == 0
    shown, said = seen(page)
    assert said == []
    assert "<title>run: incident</title>" in shown and "<script" not in shown
    assert shown.count("<svg ") == 2 and shown.count("<rect ") == 4 and shown.count("<details>") == 1
    assert "How to replay" in shown
