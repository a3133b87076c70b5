"""A container image made of the rank's own installed files: no base image, no registry. Made once per environment."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from prismdbg.runtime.docker_engine import Engine, StoredImage
from prismdbg.runtime.environment import Environment
from prismdbg.runtime.image_layers import add_environment
from prismdbg.runtime.tar_stream import stream
from prismdbg.runtime.visible import require_installed

REPOSITORY = "prismdbg/env"
ENVIRONMENT_LABEL = "prismdbg.environment"


def environment_tag(environment: Environment) -> str:
    return f"{REPOSITORY}:{environment.key}"


def ensure_environment_image(engine: Engine, environment: Environment) -> str:
    """An image that holds these files: one made before, also where it goes by another name, or one made now. Containers
    that killed commands have left are removed first."""
    engine.remove_abandoned()
    return _ensured(engine, environment)


def _ensured(engine: Engine, environment: Environment) -> str:
    tag, labels = environment_tag(environment), {ENVIRONMENT_LABEL: environment.key}
    if engine.has_image(tag):
        return tag
    if found := engine.images_labelled(f"{ENVIRONMENT_LABEL}={environment.key}"):
        return found[0]
    require_installed(environment)
    environment.check_unchanged()
    common, extra = environment.parts()
    if extra.files:
        base = _ensured(engine, common)
        layer = stream(partial(add_environment, environment=extra))
        _add_layer(engine, base, layer, (REPOSITORY, environment.key), labels)
    else:
        layer = stream(partial(add_environment, environment=environment))
        engine.import_image(REPOSITORY, environment.key, layer, labels)
    return tag


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
