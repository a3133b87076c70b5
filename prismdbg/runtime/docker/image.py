"""A container image made of the rank's own installed files: no base image, no registry. Made once per environment."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from prismdbg.model.plurals import counted
from prismdbg.runtime.docker.engine import Engine, StoredImage
from prismdbg.runtime.docker.image_layers import add_environment
from prismdbg.runtime.docker.tar_stream import stream
from prismdbg.runtime.environment import Environment, InstalledFile
from prismdbg.runtime.runtime import Say, silent
from prismdbg.runtime.visible import require_installed

REPOSITORY = "prismdbg/env"
ENVIRONMENT_LABEL = "prismdbg.environment"
_TOLD_S = 2.0
_TENTHS = 10
_WORTH_TELLING_BYTES = 64 << 20  # less is done before a second is over


def environment_tag(environment: Environment) -> str:
    return f"{REPOSITORY}:{environment.key}"


def ensure_environment_image(
    engine: Engine, environment: Environment, say: Say = silent, *, cache: Path | None = None
) -> str:
    """An image that holds these files: one made before, also where it goes by another name, or one made now. Containers
    that killed commands have left are removed first.

    say: is told that one is made, which takes minutes, and each tenth of it; what it raises ends the making. cache:
    commands that share this folder make one after another, and what one has made serves the next."""
    engine.remove_abandoned()
    if found := _found(engine, environment):
        return found
    _require_same(environment)  # before anybody waits
    with _one_at_a_time(cache, say):
        return _ensured(engine, environment, say)


def _found(engine: Engine, environment: Environment) -> str | None:
    tag = environment_tag(environment)
    if engine.has_image(tag):
        return tag
    return next(iter(engine.images_labelled(f"{ENVIRONMENT_LABEL}={environment.key}")), None)


def _require_same(environment: Environment) -> None:
    require_installed(environment)
    environment.check_unchanged()


@contextmanager
def _one_at_a_time(cache: Path | None, say: Say) -> Iterator[None]:
    """A command that is killed lets go of it. Without a folder to write to, nobody waits."""
    with ExitStack() as held:
        lock = _opened(cache, held) if cache is not None else None
        began_s = time.monotonic()
        while lock is not None and not _takes(lock):
            waited_s = time.monotonic() - began_s
            say(f"docker: another command builds a container image: waiting ({waited_s:.0f} s)")
            time.sleep(_TOLD_S)
        yield


def _opened(cache: Path, held: ExitStack) -> int | None:
    """The folder itself is the lock: nothing is written."""
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(cache, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held.callback(os.close, descriptor)
        return descriptor
    return None


def _takes(lock: int) -> bool:
    """True also where the file system has no locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _ensured(engine: Engine, environment: Environment, say: Say) -> str:
    if found := _found(engine, environment):
        return found
    tag, labels = environment_tag(environment), {ENVIRONMENT_LABEL: environment.key}
    _require_same(environment)
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
    if total >= _WORTH_TELLING_BYTES:
        say("docker: container image: Docker has all files and stores them")


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
