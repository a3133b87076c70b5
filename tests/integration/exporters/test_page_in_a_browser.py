"""The page for a ticket in a real browser: it is shown, without an error in the console, and no script in it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import browser, needs_browser, processes_of
from chain import prismdbg
from incident_run import HOSTILE, write_run

pytestmark = needs_browser
SAID = re.compile(r":CONSOLE[:(].*")


def seen(page: Path) -> tuple[str, list[str]]:
    """The document as the browser has it, and what its console says."""
    asked = ("--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--dump-dom", page.as_uri())
    with browser(*asked) as ran:
        shown, said = ran.communicate(timeout=240)
    assert ran.returncode == 0, said
    return shown, SAID.findall(said)


def test_nothing_is_left_of_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    with browser("--remote-debugging-port=0", "about:blank") as started:
        home = Path(str(started.args).partition("--user-data-dir=")[2].partition("'")[0]).parent
        assert started.stderr is not None and any("DevTools listening" in line for line in started.stderr)
        assert started.pid in processes_of(home)
    assert not home.exists() and not processes_of(home) and not list(tmp_path.iterdir())


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
