"""The documentation as a site (`make docs`): its navigation is complete, and its hooks adapt pages as they should."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import yaml

from prismdbg.cli import registry

ROOT = Path(__file__).parents[3]
HOOKS = ROOT / "docs" / "hooks"


def hook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, HOOKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files() -> ModuleType:
    return hook("repository_files")


def pages_in(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for each in (nav.values() if isinstance(nav, dict) else nav) for page in pages_in(each)]


def test_every_page_has_its_place_in_the_navigation(files: ModuleType) -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    docs = [f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")]
    linked = [name for name in files.linked_files(docs) if name.endswith(".md")]
    expected = {files.site_path(name) for name in (*docs, *linked)} | {"reference/cli.md"}
    found = pages_in(config["nav"])
    assert len(found) == len(set(found)) and set(found) == expected
    assert config["strict"] and config["theme"]["font"] is False


def test_a_walkthrough_comes_with_its_pictures_and_scripts(files: ModuleType) -> None:
    found = files.linked_files(["docs/debugging.md", "docs/ci.md"])
    assert {"examples/incidents/nan/README.md", "examples/incidents/nan/1-opened.svg", "SECURITY.md"} <= {
        *found,
        *files.linked_files(["docs/index.md"]),
    }
    assert "examples/ci/checks.yaml" in found and not [name for name in found if name.startswith("docs/")]


def test_links_lead_to_the_same_file_in_the_site(files: ModuleType) -> None:
    walk = "[a](../examples/incidents/nan/README.md#key-by-key) ![b](../examples/incidents/nan/1-opened.svg)"
    assert files.links_for_site(walk, "docs/debugging.md") == walk.replace("../", "")
    back = "[a](../../docs/ci.md) [b](../../README.md) [c](https://a.b/c) [d](#e) [f](gone.md)"
    assert files.links_for_site(back, "examples/ci/README.md") == (
        "[a](../../ci.md) [b](../../index.md) [c](https://a.b/c) [d](#e) [f](gone.md)"
    )


def test_lists_are_read_as_in_the_repository(files: ModuleType) -> None:
    written = "Text:\n- a\n  b\n1. c\n\n   d\n\n       code\n- e\n\n```\n- f\n1. g\n```\nEnd\n   x\n"
    read = "Text:\n\n- a\n  b\n\n1. c\n\n    d\n\n        code\n\n- e\n\n```\n- f\n1. g\n```\nEnd\n   x\n"
    assert files.lists_for_mkdocs(written) == read


def test_the_reference_has_every_command_and_option() -> None:
    page = hook("cli_reference").page()
    for name, entry in registry.entries().items():
        command = entry.load()
        under = command.commands.items() if isinstance(command, click.Group) else ()
        for title, each in ((name, command), *((f"{name} {sub}", it) for sub, it in under)):
            part = page.partition(f"# prismdbg {title}\n")[2].partition("\n#")[0]
            options = [param for param in each.params if isinstance(param, click.Option) and not param.hidden]
            assert part and all(option.opts[-1] in part for option in options), title


@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="mkdocs-material is missing: make docs")
def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'tui'}"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        assert not [word for word in page.read_text().split() if word.startswith(('src="http', "src='http"))], page
    assert not list((tmp_path / "site").rglob("*.py"))
