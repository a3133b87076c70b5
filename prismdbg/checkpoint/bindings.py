"""The one place that imports pycriu: reads and writes CRIU's images as plain dicts."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from prismdbg.checkpoint.bundle import Criu
from prismdbg.errors import CapsuleError

Entry = dict[str, Any]
MAX_IMAGE_BYTES = 256 << 20  # of one that is parsed; pages are never parsed


def load_image(criu: Criu, path: Path) -> list[Entry]:
    """The entries of one image. A damaged or missing one is a `CapsuleError`."""
    return list(_load(criu, path)["entries"])


def edit_image(criu: Criu, source: Path, target: Path, entries: list[Entry]) -> None:
    """Writes `source` again as `target` with these entries."""
    image = _load(criu, source)
    image["entries"] = entries
    with target.open("xb") as file:
        _pycriu(criu).images.dump(image, file)


def write_image(criu: Criu, target: Path, magic: str, entries: list[Entry]) -> None:
    """A new image of the kind that `magic` names."""
    with target.open("xb") as file:
        _pycriu(criu).images.dump({"magic": magic, "entries": entries}, file)


def _load(criu: Criu, path: Path) -> Entry:
    try:
        if path.stat().st_size > MAX_IMAGE_BYTES:
            raise ValueError("it is too large")
        with path.open("rb") as file:
            image: Entry = _pycriu(criu).images.load(file, pretty=False)
    except Exception as error:  # pycriu and protobuf raise all kinds on damaged bytes
        raise CapsuleError(
            f"the process image {path} cannot be read: {error}", hint="the capsule is damaged"
        ) from error
    return image


def _pycriu(criu: Criu) -> Any:
    """Beside the CRIU it belongs to; the name on PyPI is another project."""
    where = str(criu.python_path)
    if where not in sys.path:
        sys.path.append(where)
    return importlib.import_module("pycriu")
