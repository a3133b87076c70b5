"""A container image made of the rank's own installed files: no base image, no registry. Made once per environment."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from prismdbg.model.plurals import counted
from prismdbg.runtime.docker.engine import Engine, StoredImage
from prismdbg.runtime.docker.image_layers import add_environment
from prismdbg.runtime.docker.tar_stream import stream
from prismdbg.runtime.environment import Environment, InstalledFile
from prismdbg.runtime.runtime import Say, silent
from prismdbg.runtime.visible import require_installed

REPOSITORY = "prismdbg/env"
ENVIRONMENT_LABEL = "prismdbg.environment"
_TENTHS = 10
_WORTH_TELLING_BYTES = 64 << 20  # less is done before a second is over


def environment_tag(environment: Environment) -> str:
    return f"{REPOSITORY}:{environment.key}"


def ensure_environment_image(engine: Engine, environment: Environment, say: Say = silent) -> str:
    """An image that holds these files: one made before, also where it goes by another name, or one made now. Containers
    that killed commands have left are removed first.

    say: is told that one is made, which takes minutes, and each tenth of it; what it raises ends the making."""
    engine.remove_abandoned()
    return _ensured(engine, environment, say)


def _ensured(engine: Engine, environment: Environment, say: Say) -> str:
    tag, labels = environment_tag(environment), {ENVIRONMENT_LABEL: environment.key}
    if engine.has_image(tag):
        return tag
    if found := engine.images_labelled(f"{ENVIRONMENT_LABEL}={environment.key}"):
        return found[0]
    require_installed(environment)
    environment.check_unchanged()
    common, extra = environment.parts()
    if extra.files:
        base = _ensured(engine, common, say)
        _add_layer(engine, base, _layer(extra, say), (REPOSITORY, environment.key), labels)
    else:
        engine.import_image(REPOSITORY, environment.key, _layer(environment, say), labels)
    say("docker: the container image is complete")
    return tag


def _layer(environment: Environment, say: Say) -> Iterator[bytes]:
    """The files as Docker takes them, while `say` is told how many of their bytes are done."""
    files, total = counted(len(environment.files), "file"), environment.size_bytes
    done = 0

    def add(file: InstalledFile) -> None:
        nonlocal done
        done += file.size_bytes

    say(f"docker: building a container image from {files}, {_mib(total)} MiB, once for this environment")
    told = 0
    for chunk in stream(partial(add_environment, environment=environment, on_added=add)):
        yield chunk
        if (tenths := done * _TENTHS // max(total, 1)) > told and total >= _WORTH_TELLING_BYTES:
            told = tenths
            say(f"docker: container image: {_mib(done)} of {_mib(total)} MiB")


def _mib(size_bytes: int) -> int:
    return -(-size_bytes // (1 << 20))


def stored_environments(engine: Engine) -> list[StoredImage]:
    """Oldest first. Nothing removes one by itself: whoever replays next would have to make it again."""
    return engine.images_of(REPOSITORY)


def _add_layer(
    engine: Engine, base: str, layer: Iterator[bytes], name: tuple[str, str], labels: dict[str, str]
) -> None:
    container = engine.create(base, ["none"], network_mode="none")
    try:
        engine.put(container, layer)
        engine.commit(container, *name, labels=labels)
    finally:
        engine.remove(container)
