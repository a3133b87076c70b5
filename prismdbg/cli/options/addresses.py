"""Arguments that are a path of this machine, or an address of an object store or of an image in a registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from prismdbg.capsule.partial import temporary_folder
from prismdbg.jobs.storage.remote import image_registry
from prismdbg.jobs.storage.remote.image_registry import SCHEME, ImageAddress
from prismdbg.jobs.storage.remote.object_store import Address, fetch, push, require_free
from prismdbg.render import console

SHOWN = f"{__name__}.shown"  # of a context's `meta`: what shows long work that is done before the command begins


class Fetched(click.Path):
    """What a command reads. An address is fetched first, and the command gets the path of the copy."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        address = _address(value) if isinstance(value, str) else None
        if address is None:
            return super().convert(value, param, context)
        with (nullcontext if context is None else context.meta.get(SHOWN, nullcontext))():
            if isinstance(address, ImageAddress):
                return image_registry.fetch(address, console.announce)
            return fetch(address, console.announce)


def _address(text: str) -> Address | ImageAddress | None:
    return ImageAddress.of(text) if text.startswith(SCHEME) else Address.of(text)


class Written(click.ParamType[Path | Address]):
    """What a command writes: a path, or an address."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Path | Address:
        if isinstance(value, Path | Address):
            return value
        return Address.of(value) or Path(value)


@contextmanager
def written(target: Path | Address) -> Iterator[Path]:
    """Where to write; what is there when the block ends well is put to the address."""
    if isinstance(target, Path):
        yield target
        return
    require_free(target)
    with temporary_folder("upload") as folder:
        path = folder / target.name
        yield path
        push(path, target, console.announce)
