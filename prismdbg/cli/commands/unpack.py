"""`prismdbg unpack`: a capsule of a packed file, nothing in it trusted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from prismdbg.capsule import layout
from prismdbg.cli.options.addresses import Fetched, Written, written
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.param_types import size
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.jobs.storage.archive_crypto import ENCRYPTED_SUFFIX, Keys
from prismdbg.jobs.storage.archive_reader import Limits
from prismdbg.jobs.storage.pack import read_manifest, unpack
from prismdbg.jobs.storage.remote.fetched_cache import is_fetched
from prismdbg.jobs.storage.remote.object_store import Address
from prismdbg.model.plurals import counted
from prismdbg.render import console


@click.command()
@click.argument("file", type=Fetched())
@click.option(
    "-o",
    "--output",
    type=Written(),
    metavar="CAPSULE",
    help="Write to this new folder.  [default: FILE without .tar.zst]",
)
@click.option("--max-size", type=size, help="Refuse contents larger than SIZE.  [default: the free space on the disk]")
@archive_keys
@long_work.shown()
def command(file: Path, output: Path | Address | None, max_size: int | None, keys: Keys) -> None:
    """Unpack FILE, written by `prismdbg pack`, into a capsule folder and print its path.

    Example: `prismdbg unpack incident.tar.zst`

    A damaged or hostile file gives one error and exit code 3, and leaves nothing behind. If FILE is signed, the output
    names its signer.
    """
    target = output or _default_target(file)
    total_bytes = read_manifest(file, replace(keys, say=lambda _: None)).size_bytes
    with written(target) as path, console.byte_progress("unpacking", total_bytes) as progress:
        capsule = unpack(file, path, Limits(total_bytes=max_size), progress, keys)
    console.say(f"{counted(len(capsule.manifest.files), 'file')}, {console.size(total_bytes)}")
    console.emit(str(target))


def _default_target(file: Path) -> Path:
    name = file.name.removesuffix(ENCRYPTED_SUFFIX)
    if not name.endswith(layout.PACKED_SUFFIX):
        raise UsageError(
            f"{file} does not end in {layout.PACKED_SUFFIX}, so the name of the new folder is unknown",
            hint="give the new folder with -o",
        )
    named = name.removesuffix(layout.PACKED_SUFFIX)
    return Path.cwd() / named if is_fetched(file) else file.with_name(named)
