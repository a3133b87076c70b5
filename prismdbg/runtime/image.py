"""A container image made of the rank's own installed files: no base image, no registry. Made once per environment.

An image that also holds a capsule (`embed_capsule`) is all that another machine needs.
"""

from __future__ import annotations

import secrets
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

from prismdbg.errors import CapsuleError
from prismdbg.runtime.docker_engine import Engine, StoredImage
from prismdbg.runtime.environment import Environment
from prismdbg.runtime.image_layers import add_capsule, add_environment
from prismdbg.runtime.tar_stream import stream

REPOSITORY, CAPSULES = "prismdbg/env", "prismdbg/capsule"
ENVIRONMENT_LABEL = "prismdbg.environment"
CAPSULE_AT = PurePosixPath("/prismdbg/capsule")  # in an image that embeds one


def environment_tag(environment: Environment) -> str:
    return f"{REPOSITORY}:{environment.key}"


def ensure_environment_image(engine: Engine, environment: Environment) -> str:
    """An image that holds these files: one made before, one that came with an embedded capsule, or one made now."""
    tag, labels = environment_tag(environment), {ENVIRONMENT_LABEL: environment.key}
    if engine.has_image(tag):
        return tag
    if found := engine.images_labelled(f"{ENVIRONMENT_LABEL}={environment.key}"):
        return found[0]
    environment.check_unchanged()
    common, extra = environment.parts()
    if extra.files:
        base = ensure_environment_image(engine, common)
        layer = stream(partial(add_environment, environment=extra))
        _add_layer(engine, base, layer, (REPOSITORY, environment.key), labels)
    else:
        layer = stream(partial(add_environment, environment=environment))
        engine.import_image(REPOSITORY, environment.key, layer, labels)
    return tag


def stored_environments(engine: Engine) -> list[StoredImage]:
    """Oldest first. Nothing removes one by itself: whoever replays next would have to make it again."""
    return engine.images_of(REPOSITORY)


def embed_capsule(engine: Engine, environment: Environment, capsule: Path, name: str) -> str:
    """The tag of a new image with the environment and this capsule in it."""
    base = ensure_environment_image(engine, environment)
    layer = stream(partial(add_capsule, capsule=capsule, at=CAPSULE_AT))
    _add_layer(engine, base, layer, (CAPSULES, name), {ENVIRONMENT_LABEL: environment.key})
    return f"{CAPSULES}:{name}"


def extract_capsule(engine: Engine, tag: str, into: Path) -> Path:
    """The embedded capsule as a new folder `into`. What came from elsewhere is unpacked member by member."""
    container = engine.create(tag, ["none"], network_mode="none")
    partial_copy = into.with_name(f".{into.name}.{secrets.token_hex(4)}")
    partial_copy.mkdir(mode=0o700, parents=True)
    try:
        with engine.get(container, str(CAPSULE_AT)) as archive, tarfile.open(fileobj=archive, mode="r|") as tar:
            for member in tar:
                _unpack(tar, member, partial_copy)
        return partial_copy.rename(into)
    finally:
        engine.remove(container)


def _add_layer(
    engine: Engine, base: str, layer: Iterator[bytes], name: tuple[str, str], labels: dict[str, str]
) -> None:
    container = engine.create(base, ["none"], network_mode="none")
    try:
        engine.put(container, layer)
        engine.commit(container, *name, labels=labels)
    finally:
        engine.remove(container)


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, into: Path) -> None:
    parts = PurePosixPath(member.name).parts[1:]  # below `capsule`
    if ".." in parts or not (member.isreg() or member.isdir()):
        raise CapsuleError(f"the image's capsule holds {member.name!r}", hint="do not use this image")
    target = into.joinpath(*parts)
    if member.isdir():
        target.mkdir(mode=0o700, exist_ok=True)
        return
    content = tar.extractfile(member)
    assert content is not None
    with content, target.open("xb") as file:
        target.chmod(0o600)
        while data := content.read(1 << 20):
            file.write(data)
