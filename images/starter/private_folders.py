"""The starter's own folders (its orders, its status, its socket): out of the rank's view, and reached by descriptor
from then on. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from syscalls import MNT_DETACH, check, libc, mount, open_detached

FIRST = 1  # the inner process, wherever it may take the folders away: the engine, its child, goes through it as well


def hold_private(spec: dict[str, Any]) -> dict[str, int]:
    """Opens them while they can be seen; nothing where the starter has no more rights than the rank. Once the mount
    namespace is ours."""
    if spec["isolation"] == "none":
        return {}
    return {path: open_detached(path) for path in spec["private"]}


def seen_by_descriptor(spec: dict[str, Any], private: dict[str, int]) -> dict[str, Any]:
    """Takes them out of the view of all that runs here; the spec with paths that go through the descriptors.

    The rank cannot go that way: it may not look into a process that has more rights.
    """
    for path in private:
        if spec["isolation"] == "pid":
            check(libc.umount2(os.fsencode(path), MNT_DETACH), f"hide {path} from the rank")
        elif Path(path).is_dir():  # seen through the layer over the machine's own files: an empty folder goes over it
            mount("prismdbg", path, "tmpfs", data="mode=700,size=4k")
    return {name: _replaced(value, private) for name, value in spec.items()}


def _replaced(value: Any, private: dict[str, int]) -> Any:
    if isinstance(value, dict):
        return {name: _replaced(item, private) for name, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, private) for item in value]
    if isinstance(value, str):
        for path, descriptor in private.items():
            if value == path or value.startswith(f"{path}/"):
                return f"/proc/{FIRST}/fd/{descriptor}{value[len(path) :]}"
    return value
