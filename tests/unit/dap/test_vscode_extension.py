"""The extension for Visual Studio Code: its archive, its manifest, and what its launch configurations may say."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
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
    named = [*map(str, assets), f"extension/{PACKAGE['main']}"]
    assert sorted(name for name in names if name.startswith("extension/")) == sorted(named)
    endings = {each.get("Extension") for each in types}
    assert {Path(name).suffix for name in names if not name.startswith("[")} <= endings


def test_the_same_files_make_the_same_archive(tmp_path: Path) -> None:
    assert build(tmp_path / "a").read_bytes() == build(tmp_path / "b").read_bytes()


# Prints what VS Code would start for a setting and a workspace, or the error that it would show.
START = """
const [extension, path, workspace] = process.argv.slice(1);
let factory;
const vscode = {
    DebugAdapterExecutable: class { constructor(command, args) { this.line = [command, ...args]; } },
    debug: { registerDebugAdapterDescriptorFactory: (type, made) => { factory = [type, made]; } },
    workspace: { getConfiguration: (section) => ({ get: (name) => section + "." + name === "prismdbg.path" && path }) },
};
const load = require("module")._load;
require("module")._load = (name, ...rest) => name === "vscode" ? vscode : load(name, ...rest);
require(extension).activate({ subscriptions: [] });
const session = workspace ? { workspaceFolder: { uri: { fsPath: workspace } } } : {};
try {
    console.log(JSON.stringify([factory[0], ...factory[1].createDebugAdapterDescriptor(session).line]));
} catch (error) {
    console.log(JSON.stringify(error.message));
}
"""


def started(setting: str, workspace: Path | str, path: Path) -> Any:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed (apt-get install nodejs)")
    line = [node, "-e", START, "--", str(ROOT / "vscode" / PACKAGE["main"]), setting, str(workspace)]
    done = subprocess.run(line, env={"PATH": str(path)}, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(0o755)
    return path


def test_it_starts_the_adapter_that_is_in_the_path_or_that_the_setting_names(tmp_path: Path) -> None:
    found = ["prismdbg", str(program(tmp_path / "bin" / "prismdbg")), "dap"]
    assert started("prismdbg", "", tmp_path / "bin") == found and "dap" in registry.entries()
    assert started(found[1], "", tmp_path) == found
    assert started("bin/prismdbg", tmp_path, tmp_path) == found


def test_a_program_that_is_missing_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "prismdbg").mkdir()
    missing = started("prismdbg", "", tmp_path)
    assert missing.startswith("prismdbg: not in the PATH of VS Code. Set prismdbg.path")
    assert started("/no/prismdbg", "", tmp_path).startswith("/no/prismdbg: no such program. Set prismdbg.path")


def test_it_is_active_before_a_session_starts() -> None:
    assert PACKAGE["activationEvents"] == [f"onDebugResolve:{DEBUGGER['type']}"]
    assert PACKAGE["contributes"]["configuration"]["properties"]["prismdbg.path"]["default"] == "prismdbg"
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
