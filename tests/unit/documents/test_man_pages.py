"""`make man`: a page for each command, which man shows without a warning."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prismdbg.cli import registry

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("man")
    command = [sys.executable, str(ROOT / "docs" / "hooks" / "man_pages.py"), str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    return {path.stem: path for path in map(Path, ran.stdout.split())}


def test_every_command_has_a_page(pages: dict[str, Path]) -> None:
    assert {"prismdbg", "prismdbg-graph-build"} | {f"prismdbg-{name}" for name in registry.entries()} <= pages.keys()


def test_a_page_says_what_the_help_says(pages: dict[str, Path]) -> None:
    text = shown(pages["prismdbg-record"])
    for words in ("Run a training job and record its collectives.", "--checkpoint-every STEPS", "--on-incident CMD"):
        assert words in text, text
    assert "debugger for one rank" in shown(pages["prismdbg"])
    assert "PRISMDBG-RECORD(1)" in shown(pages["prismdbg-record"])
    assert "PRISMDBG-GRAPH-BUILD(1)" in shown(pages["prismdbg-graph-build"])


def test_no_page_has_a_mistake(pages: dict[str, Path]) -> None:
    for page in pages.values():
        shown(page)


def shown(page: Path) -> str:
    """As groff sets it, without line breaks; a warning of it is an error."""
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    command = ["groff", "-man", "-ww", "-Tutf8", "-Kutf8", "-rLL=200n", "-P-cbou", str(page)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    return " ".join(ran.stdout.replace("\u2010", "-").replace("\u2212", "-").split())
