"""What an OCI image of a capsule consists of, by the names of the OCI image specification."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BLOBS = "blobs/sha256"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """`digest`: of the image's manifest."""

    path: Path
    tag: str
    digest: str
    size_bytes: int
