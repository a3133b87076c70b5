"""The container images of environments that replays in Docker made: listed with their sizes, removed on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prismdbg.jobs.injection import cache_dir
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import Engine, StoredImage, engine
from prismdbg.runtime.docker.image import stored_environments


@contextmanager
def _docker() -> Iterator[Engine]:
    """An engine of ours is started where none runs: the images are its own."""
    with engine(Daemon(cache_dir())) as docker:
        yield docker


def environment_images() -> list[StoredImage]:
    """Oldest first."""
    with _docker() as docker:
        return stored_environments(docker)


def remove_images(images: list[StoredImage], on_removed: Callable[[StoredImage, bool], None]) -> None:
    """`on_removed`: told of each, and whether it went; one that a container stands on stays."""
    with _docker() as docker:
        for image in images:
            on_removed(image, docker.remove_unused_image(image.tag))
