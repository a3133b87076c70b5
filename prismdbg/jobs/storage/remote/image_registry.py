"""Capsules in a container registry (`docker://HOST/NAME:TAG`): pushed as the OCI image of `oci_layout`, fetched as the
packed capsule that its layer is.

What a registry has is foreign: manifest, size and digest are checked, and a reader checks the capsule itself.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

from prismdbg.capsule import checked_json, layout
from prismdbg.capsule.checked_json import Count, Word
from prismdbg.capsule.transfer import hash_file
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs.storage.remote import skopeo
from prismdbg.jobs.storage.remote.fetched_cache import cache_folder, fetching, is_whole, require_room
from prismdbg.jobs.storage.remote.oci_image import BLOBS, LAYER, Pushed
from prismdbg.model.meanwhile import by_bytes, working
from prismdbg.model.sizes import size

SCHEME = "docker://"
_LABEL = r"[A-Za-z0-9][\w-]*"
_WORD = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
# A first word without a dot, a port or the name localhost is a name of Docker Hub: nothing gets there by accident.
_ADDRESS = re.compile(
    rf"(?P<host>localhost(?::\d+)?|\[[0-9a-fA-F:]+\](?::\d+)?|{_LABEL}(?:\.{_LABEL})+(?::\d+)?|{_LABEL}:\d+)"
    rf"/(?P<name>{_WORD}(?:/{_WORD})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127})|@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_LOCAL = re.compile(r"(localhost|127\.[\d.]+|\[::1\])(:\d+)?")
_MORE_BYTES = 1 << 20  # config, manifest and index, beside the layer


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageAddress:
    """host: with its port. reference: `:TAG` or `@sha256:...`."""

    host: str
    name: str
    reference: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.host}/{self.name}{self.reference}"

    @classmethod
    def of(cls, text: str) -> ImageAddress:
        """Of `[docker://]HOST/NAME[:TAG]`, or with `@sha256:...` for the tag. `UsageError` where it is none."""
        match = _ADDRESS.fullmatch(text.removeprefix(SCHEME))
        if match is None:
            raise UsageError(
                f"{text!r} is not an image in a registry",
                hint="write docker://HOST/NAME:TAG; NAME is lower case, Docker Hub's HOST is docker.io",
            )
        reference = f"@{match['digest']}" if match["digest"] else f":{match['tag'] or 'latest'}"
        return cls(host=match["host"], name=match["name"], reference=reference)

    @property
    def tag(self) -> str:
        """Empty where it is a digest."""
        return self.reference.removeprefix(":") if self.reference.startswith(":") else ""

    @property
    def registry(self) -> skopeo.Registry:
        return skopeo.Registry(str(self), self.host)

    @property
    def is_local(self) -> bool:
        """Whether plain HTTP is allowed: of this machine alone, as for Docker."""
        return _LOCAL.fullmatch(self.host) is not None


def _is_digest(text: str) -> str:
    return "" if re.fullmatch("sha256:[0-9a-f]{64}", text) else "is not a sha256 in hexadecimal"


class LayerJson(TypedDict):
    mediaType: Word
    size: Count
    digest: Annotated[str, _is_digest]


class ImageJson(TypedDict):
    layers: list[LayerJson]


def push(made: Pushed, address: ImageAddress) -> None:
    """The tag is set last: until then nobody sees anything. What the registry has already is not sent again."""
    with working() as tell:
        skopeo.run(
            address.registry,
            [
                "copy",
                "--preserve-digests",
                *_tls("--dest-tls-verify", address),
                f"oci:{made.path.name}:{made.tag}",
                str(address),
            ],
            made.path.parent,
            skopeo.read_so_far,
            by_bytes(tell, "pushing", made.size_bytes),
        )


def fetch(address: ImageAddress, say: Callable[[str], None]) -> Path:
    """The packed capsule, as it is at the address now. `CapsuleError` where something else is there."""
    raw = skopeo.output(address.registry, ["inspect", "--raw", *_tls("--tls-verify", address), str(address)])
    layer, digest = _layer(address, raw), hashlib.sha256(raw).hexdigest()
    name = address.name.rpartition("/")[2] + layout.PACKED_SUFFIX
    target = cache_folder() / hashlib.sha256(f"{address.host}/{address.name}@{digest}".encode()).hexdigest()[:32] / name
    if is_whole(target):
        target.parent.touch()
        return target
    require_room(str(address), layer["size"])
    say(f"fetching {address}: {size(layer['size'])}")
    source = ImageAddress(host=address.host, name=address.name, reference=f"@sha256:{digest}")
    with fetching(target) as partial:
        _download(source, layer, partial / name)
    return target


def _layer(address: ImageAddress, manifest: bytes) -> LayerJson:
    where = f"the image manifest of {address}"
    try:
        found = json.loads(manifest)
        layers = checked_json.checked(ImageJson, found, where)["layers"]
    except (ValueError, RecursionError, CapsuleError) as error:
        raise _no_capsule(address) from error
    if len(layers) != 1 or layers[0]["mediaType"] != LAYER:
        raise _no_capsule(address)
    return layers[0]


def _no_capsule(address: ImageAddress) -> CapsuleError:
    return CapsuleError(f"{address} is not a capsule's image", hint="write one with `prismdbg build CAPSULE --push`")


def _download(source: ImageAddress, layer: LayerJson, target: Path) -> None:
    folder = target.parent
    with working() as tell:
        skopeo.run(
            source.registry,
            ["copy", *_tls("--src-tls-verify", source), str(source), "oci:image:latest"],
            folder,
            lambda _: _received(source, folder, layer["size"]),
            by_bytes(tell, "fetching", layer["size"]),
        )
    blob = folder / "image" / BLOBS / layer["digest"].partition(":")[2]
    if not blob.is_file() or f"sha256:{hash_file(blob).sha256}" != layer["digest"]:
        raise CapsuleError(f"{source} lacks what its digest names", hint="fetch it again, or push it again")
    blob.rename(target)
    target.chmod(0o600)
    shutil.rmtree(folder / "image")


def _received(source: ImageAddress, folder: Path, most_bytes: int) -> int:
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # renamed meanwhile
            continue
    if found > most_bytes + _MORE_BYTES:
        raise CapsuleError(f"{source} sends more than it declares", hint="do not use this registry")
    return found


def _tls(option: str, address: ImageAddress) -> list[str]:
    return [f"{option}=false"] if address.is_local else []
