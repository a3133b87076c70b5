"""`config.dump` and `spec.dump`, as podman writes them beside a checkpoint: what `checkpointctl show` reads.

They describe the rank for other people's tools. prismdbg itself never reads them back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from prismdbg.capsule.manifest import Manifest

IMAGE_NAME = "localhost/prismdbg-rank"
_NEVER = "0001-01-01T00:00:00Z"  # Go's zero time


def container_id(manifest: Manifest) -> str:
    """64 hexadecimal digits as container ids have, the same for the same capsule."""
    which = f"{manifest.job}\0{manifest.rank}\0{manifest.created_ns}"
    return hashlib.sha256(os.fsencode(which)).hexdigest()  # a folder's name may be no UTF-8


def container_name(manifest: Manifest) -> str:
    return f"rank{manifest.rank}-at-{manifest.moment_a}"


def config(manifest: Manifest) -> dict[str, Any]:
    """libpod's `ContainerConfig`, as far as a checkpoint's readers use it."""
    created = _time(manifest.created_ns)
    return {
        "id": container_id(manifest),
        "name": container_name(manifest),
        "rootfsImageName": IMAGE_NAME,
        "runtime": "runc",
        "createdTime": created,
        "checkpointedTime": created,
        "restoredTime": _NEVER,
        "restored": False,
    }


def spec(manifest: Manifest, argv: Sequence[str], cwd: str) -> dict[str, Any]:
    """An OCI runtime description. The environment stays out: it may hold secrets, and rank.json has it."""
    return {
        "ociVersion": "1.0.2",
        "process": {"args": list(argv), "cwd": cwd or "/", "user": {"uid": 0, "gid": 0}, "terminal": False},
        "root": {"path": "rootfs"},
        "hostname": f"rank{manifest.rank}",
        "annotations": {
            "io.container.manager": "libpod",
            "prismdbg.job": manifest.job,
            "prismdbg.rank": str(manifest.rank),
            "prismdbg.moment": str(manifest.moment_a),
            "prismdbg.origin": manifest.origin,
            "prismdbg.incident": manifest.incident.kind,
        },
        "linux": {},
    }


def _time(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
