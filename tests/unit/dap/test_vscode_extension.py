"""The extension for Visual Studio Code: its archive, its manifest, and what its launch configurations may say."""

from __future__ import annotations

import importlib.util
import json
import re
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import prismdbg
from prismdbg.cli import registry
from prismdbg.dap import launch
from prismdbg.dap.arguments import Arguments
from prismdbg.errors import UsageError
from prismdbg.runtime.names import RUNTIMES

ROOT = Path(__file__).parents[3]
PACKAGE = json.loads((ROOT / "vscode" / "package.json").read_text())
(DEBUGGER,) = PACKAGE["contributes"]["debuggers"]
LAUNCH = DEBUGGER["configurationAttributes"]["launch"]
SCHEMA = "{http://schemas.microsoft.com/developer/vsx-schema/2011}"


def build(folder: Path) -> Path:
    spec = importlib.util.spec_from_file_location("build_vscode", ROOT / "vscode" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.build(folder)  # type: ignore[no-any-return]


def test_the_archive_has_what_its_manifest_names(tmp_path: Path) -> None:
    path = build(tmp_path / "dist")
    assert path.name == f"prismdbg-{prismdbg.__version__}.vsix"
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert archive.testzip() is None and len(set(names)) == len(names)
        manifest = ElementTree.fromstring(archive.read("extension.vsixmanifest"))
        types = ElementTree.fromstring(archive.read("[Content_Types].xml"))
        assert json.loads(archive.read("extension/package.json")) == PACKAGE
        assert archive.read("extension/LICENSE.txt") == (ROOT / "LICENSE").read_bytes()
    identity = manifest.find(f"{SCHEMA}Metadata/{SCHEMA}Identity")
    assert identity is not None
    assert [identity.get(name) for name in ("Id", "Version", "Publisher")] == [
        "prismdbg",
        prismdbg.__version__,
        "prismdbg",
    ]
    assets = [asset.get("Path") for asset in manifest.iter(f"{SCHEMA}Asset")]
    assert sorted(name for name in names if name.startswith("extension/")) == sorted(map(str, assets))
    endings = {each.get("Extension") for each in types}
    assert {Path(name).suffix for name in names if not name.startswith("[")} <= endings


def test_the_same_files_make_the_same_archive(tmp_path: Path) -> None:
    assert build(tmp_path / "a").read_bytes() == build(tmp_path / "b").read_bytes()


def test_it_starts_the_adapter_and_runs_no_code_of_its_own() -> None:
    assert (DEBUGGER["runtime"], DEBUGGER["runtimeArgs"]) == ("prismdbg", ["dap"]) and "dap" in registry.entries()
    assert "main" not in PACKAGE and "browser" not in PACKAGE
    assert PACKAGE["version"] == prismdbg.__version__


def test_its_launch_attributes_are_those_that_the_adapter_takes() -> None:
    taken = set(re.findall(r'arguments\.\w+\("(\w+)"', Path(launch.__file__).read_text()))
    assert set(LAUNCH["properties"]) == taken
    assert tuple(LAUNCH["properties"]["runtime"]["enum"]) == RUNTIMES


@pytest.mark.parametrize("name", LAUNCH["properties"])
def test_an_attribute_of_another_type_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(UsageError, match=f"launch: {name} must be"):
        launch.Launch().told(Arguments({"capsule": "x", name: {"not": "this"}}, "launch"))


def test_the_configurations_that_it_offers_are_taken() -> None:
    offered: list[dict[str, Any]] = [
        *DEBUGGER["initialConfigurations"],
        *(snippet["body"] for snippet in DEBUGGER["configurationSnippets"]),
    ]
    for each in offered:
        assert each["type"] == "prismdbg" and each["request"] in DEBUGGER["configurationAttributes"]
        if each["request"] == "launch":
            assert launch.Launch().told(Arguments(each, "launch")).path is not None
