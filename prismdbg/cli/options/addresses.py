"""Arguments that are a path of this machine, or an address of an object store or of an image in a registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prismdbg.errors import UsageError
from prismdbg.jobs.storage.remote.addresses import fetching, in_a_store
from prismdbg.render import console

if TYPE_CHECKING:
    from prismdbg.jobs.storage.remote.object_store import Address

    _Target = click.ParamType["Path | Address"]
else:
    _Target = click.ParamType  # before click 8.4 it has no parameter

_GIVEN = f"{__name__}.given"  # of a context's `meta`: by argument, what was typed
SHOWN = f"{__name__}.shown"  # of a context's `meta`: what shows long work that is done before the command begins


class Fetched(click.Path):
    """What a command reads. An address is fetched first, and the command gets the path of the copy."""

    def __init__(self, *, exists: bool = False) -> None:
        super().__init__(path_type=Path, exists=exists)

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        fetch = fetching(value) if isinstance(value, str) else None
        if context is not None and param is not None:
            context.meta.setdefault(_GIVEN, {})[param.name] = str(value)
        if fetch is None:
            return super().convert(value, param, context)
        with (nullcontext if context is None else context.meta.get(SHOWN, nullcontext))():
            return fetch(console.announce)


def as_given(argument: str) -> str:
    """What was typed for this argument of the present command, of type `Fetched`."""
    return str(click.get_current_context().meta[_GIVEN][argument])


class LocalPath(click.Path):
    """A path of this machine, of a command that writes there while a job runs, or removes what is there."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        if isinstance(value, str) and in_a_store(value) is not None:
            command = "This" if context is None else f"`{context.info_name}`"
            raise UsageError(
                f"{command} needs a folder of this machine, and {value} is an address",
                hint="give a path; `prismdbg gather RUN -o ADDRESS` uploads a run that has ended",
            )
        return super().convert(value, param, context)


class Written(_Target):
    """What a command writes: a path, or an address."""

    name = "path"

    def convert(
        self, value: str | Path | Address, param: click.Parameter | None, context: click.Context | None
    ) -> Path | Address:
        return (in_a_store(value) or Path(value)) if isinstance(value, str) else value


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
