"""Packs the extension for Visual Studio Code into a .vsix: a zip file with a manifest. `make vscode` runs it.

Usage: build.py FOLDER
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

HERE = Path(__file__).parent
OWN = ("package.json", "extension.js", "README.md")
FILES = {**{name: HERE / name for name in OWN}, "LICENSE.txt": HERE.parent / "LICENSE"}
TYPES = {
    ".json": "application/json",
    ".js": "application/javascript",
    ".md": "text/markdown",
    ".txt": "text/plain",
    ".vsixmanifest": "text/xml",
}
SAME_TIME = (1980, 1, 1, 0, 0, 0)  # the same files make the same archive

MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id={name} Version={version} Publisher={publisher} />
    <DisplayName>{title}</DisplayName>
    <Description xml:space="preserve">{description}</Description>
    <Tags>{tags}</Tags>
    <Categories>{categories}</Categories>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value={engine} />
      <Property Id="Microsoft.VisualStudio.Code.ExtensionKind" Value="workspace" />
    </Properties>
    <License>extension/LICENSE.txt</License>
  </Metadata>
  <Installation><InstallationTarget Id="Microsoft.VisualStudio.Code" /></Installation>
  <Dependencies />
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true" />
    <Asset Type="Microsoft.VisualStudio.Services.Content.Details" Path="extension/README.md" Addressable="true" />
    <Asset Type="Microsoft.VisualStudio.Services.Content.License" Path="extension/LICENSE.txt" Addressable="true" />
  </Assets>
</PackageManifest>
"""


def build(folder: Path) -> Path:
    """The path of the .vsix in `folder`, which is made where it is missing."""
    package = json.loads(FILES["package.json"].read_text())
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{package['name']}-{package['version']}.vsix"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "[Content_Types].xml", _content_types().encode())
        _add(archive, "extension.vsixmanifest", _manifest(package).encode())
        for name, path in FILES.items():
            _add(archive, f"extension/{name}", path.read_bytes())
    return target


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, SAME_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    archive.writestr(info, data)


def _content_types() -> str:
    rows = "".join(f'<Default Extension="{ending}" ContentType="{kind}"/>' for ending, kind in TYPES.items())
    return (
        '<?xml version="1.0" encoding="utf-8"?>'
        f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{rows}</Types>'
    )


def _manifest(package: dict[str, object]) -> str:
    def texts(name: str) -> str:
        found = package[name]
        assert isinstance(found, list)
        return escape(",".join(map(str, found)))

    engines = package["engines"]
    assert isinstance(engines, dict)
    return MANIFEST.format(
        name=quoteattr(str(package["name"])),
        version=quoteattr(str(package["version"])),
        publisher=quoteattr(str(package["publisher"])),
        title=escape(str(package["displayName"])),
        description=escape(str(package["description"])),
        tags=texts("keywords"),
        categories=texts("categories"),
        engine=quoteattr(str(engines["vscode"])),
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(build(Path(sys.argv[1])))
