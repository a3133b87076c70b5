"""A capsule as an OCI image in a folder of the OCI layout: one layer, which is the packed capsule.

With a checkpoint in it, the image has the annotations that podman and CRI-O give to an image of a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import zstandard

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Manifest, Origin
from prismdbg.capsule.partial import partial_folder, publish_new
from prismdbg.capsule.transfer import hash_file
from prismdbg.errors import FacilityError, UsageError
from prismdbg.jobs.storage.pack import Progress, pack
from prismdbg.jobs.storage.remote.oci_image import BLOBS, CONFIG, INDEX, LAYER, MANIFEST, Pushed
from prismdbg.model.meanwhile import by_bytes, working

_CHUNK_BYTES = 1 << 20
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as Go names machines


def write_layout(capsule: Capsule, target: Path, tag: str) -> Pushed:
    """Makes the folder `target`. `UsageError` if it exists."""
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} already exists", hint="choose another name, or remove it first")
    try:
        with partial_folder(target) as folder:
            digest = _write(folder, capsule, tag)
            size_bytes = sum(path.stat().st_size for path in (folder / BLOBS).iterdir())
            publish_new(folder, target)
    except OSError as error:
        raise FacilityError(f"{target} could not be written: {error.strerror}", hint="check the disk") from error
    return Pushed(path=target, tag=tag, digest=digest, size_bytes=size_bytes)


def _write(folder: Path, capsule: Capsule, tag: str) -> str:
    blobs, manifest = folder / BLOBS, capsule.manifest
    blobs.mkdir(parents=True)
    packed = folder / "layer"
    with working() as tell:
        size_bytes = pack(capsule.path, packed, by_bytes(tell, "packing", manifest.size_bytes))
        found = hash_file(packed, by_bytes(tell, "hashing the layer", size_bytes))
        content = _unpacked_digest(packed, by_bytes(tell, "hashing its contents", manifest.size_bytes))
    layer = _descriptor(LAYER, f"sha256:{found.sha256}", size_bytes)
    packed.rename(blobs / layer["digest"].partition(":")[2])
    config = _put_json(blobs, CONFIG, _config(manifest, content))
    image = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
    described = _put_json(blobs, MANIFEST, image | {"annotations": annotations_of(manifest)})
    named = described | {"annotations": {"org.opencontainers.image.ref.name": tag}}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}
    (folder / "index.json").write_bytes(_json(index))
    (folder / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    return str(described["digest"])


def annotations_of(manifest: Manifest) -> dict[str, str]:
    name = f"{manifest.job}-rank-{manifest.rank}"
    found = {
        "org.opencontainers.image.created": _created(manifest),
        "org.opencontainers.image.title": name,
        "prismdbg.rank": str(manifest.rank),
        "prismdbg.world_size": str(manifest.world_size),
        "prismdbg.origin": str(manifest.origin),
        "prismdbg.start_moment": str(manifest.moment_a),
        "prismdbg.end_moment": str(manifest.moment_b),
        "prismdbg.incident": str(manifest.incident.kind),
    }
    if manifest.origin is Origin.IMAGE:
        found |= _of_checkpoint(manifest, name)
    return found


def _of_checkpoint(manifest: Manifest, name: str) -> dict[str, str]:
    known = {"criu.version": manifest.versions.get("criu", ""), "host.arch": _architecture(manifest.hardware)}
    known |= {"host.kernel": manifest.hardware.get("kernel", "")}
    podman = "io.podman.annotations.checkpoint"
    return {
        "io.kubernetes.cri-o.annotations.checkpoint.name": name,
        f"{podman}.name": name,
        **{f"{podman}.{key}": value for key, value in known.items() if value},
    }


def _config(manifest: Manifest, content: str) -> dict[str, Any]:
    return {
        "created": _created(manifest),
        "architecture": _architecture(manifest.hardware),
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [content]},
        "history": [{"created": _created(manifest), "created_by": "prismdbg build --push"}],
    }


def _architecture(hardware: Mapping[str, str]) -> str:
    machine = hardware.get("machine", "")
    return _ARCHITECTURES.get(machine, machine or "unknown")


def _created(manifest: Manifest) -> str:
    return datetime.fromtimestamp(manifest.created_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _put_json(blobs: Path, media_type: str, value: object) -> dict[str, Any]:
    data = _json(value)
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return _descriptor(media_type, f"sha256:{digest}", len(data))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _descriptor(media_type: str, digest: str, size_bytes: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size_bytes}


def _unpacked_digest(path: Path, read: Progress) -> str:
    """Of the tar inside."""
    digest = hashlib.sha256()
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as reader:
        while chunk := reader.read(_CHUNK_BYTES):
            digest.update(chunk)
            read(len(chunk))
    return f"sha256:{digest.hexdigest()}"
