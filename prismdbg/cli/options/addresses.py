"""Arguments that are a path of this machine, or an address of an object store or of an image in a registry.

What knows object stores and registries is imported for an address only: it was most of what `prismdbg --help` waited
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prismdbg.errors import UsageError
from prismdbg.render import console

if TYPE_CHECKING:
    from prismdbg.jobs.storage.remote.object_store import Address

SHOWN = f"{__name__}.shown"  # of a context's `meta`: what shows long work that is done before the command begins
_MARK = "://"  # of every address; a path may have it, too


class Fetched(click.Path):
    """What a command reads. An address is fetched first, and the command gets the path of the copy."""

    def __init__(self, *, exists: bool = False) -> None:
        super().__init__(path_type=Path, exists=exists)

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        fetch = _fetching(value) if isinstance(value, str) else None
        if fetch is None:
            return super().convert(value, param, context)
        with (nullcontext if context is None else context.meta.get(SHOWN, nullcontext))():
            return fetch(console.announce)


class LocalPath(click.Path):
    """A path of this machine, of a command that writes there while a job runs, or removes what is there."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        if isinstance(value, str) and _address(value) is not None:
            command = "This" if context is None else f"`{context.info_name}`"
            raise UsageError(
                f"{command} needs a folder of this machine, and {value} is an address",
                hint="give a path; `prismdbg gather RUN -o ADDRESS` uploads a run that has ended",
            )
        return super().convert(value, param, context)


def _fetching(text: str) -> Callable[[Callable[[str], None]], Path] | None:
    """What fetches this address; None where it is a path."""
    if _MARK not in text:
        return None
    from prismdbg.jobs.storage.remote import image_registry, object_store

    if text.startswith(image_registry.SCHEME):
        return partial(image_registry.fetch, image_registry.ImageAddress.of(text))
    address = object_store.Address.of(text)
    return None if address is None else partial(object_store.fetch, address)


def _address(text: str) -> Address | None:
    if _MARK not in text:
        return None
    from prismdbg.jobs.storage.remote.object_store import Address

    return Address.of(text)


class Written(click.ParamType["Path | Address"]):
    """What a command writes: a path, or an address."""

    name = "path"

    def convert(
        self, value: str | Path | Address, param: click.Parameter | None, context: click.Context | None
    ) -> Path | Address:
        return (_address(value) or Path(value)) if isinstance(value, str) else value


@contextmanager
def written(target: Path | Address) -> Iterator[Path]:
    """Where to write; what is there when the block ends well is put to the address."""
    if isinstance(target, Path):
        yield target
        return
    from prismdbg.capsule.partial import temporary_folder
    from prismdbg.jobs.storage.remote.upload import push, require_free

    require_free(target)
    with temporary_folder("upload") as folder:
        path = folder / target.name
        yield path
        push(path, target, console.announce)
