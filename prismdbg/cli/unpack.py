"""`prismdbg unpack`: a capsule of a packed file, nothing in it trusted."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.capsule import layout
from prismdbg.cli import render
from prismdbg.cli.param_types import size
from prismdbg.model.counted import counted
from prismdbg.workflows.archive_reader import Limits
from prismdbg.workflows.pack import read_manifest, unpack


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Default: FILE without .tar.zst, beside it.")
@click.option("--max-size", type=size, help="Refuse what holds more than this. Default: what the disk has free.")
def command(file: Path, output: Path | None, max_size: int | None) -> None:
    """Make a capsule folder of FILE, which `prismdbg pack` made.

    Prints the path of what was made. A file that is damaged or hostile gives one error, exit code 3, and leaves
    nothing behind.
    """
    target = output or _default_target(file)
    total_bytes = read_manifest(file).size_bytes
    with render.byte_progress("unpacking", total_bytes) as progress:
        capsule = unpack(file, target, Limits(total_bytes=max_size), progress)
    render.say(f"{counted(len(capsule.manifest.files), 'file')}, {render.size(total_bytes)}")
    render.emit(str(target))


def _default_target(file: Path) -> Path:
    if not file.name.endswith(layout.PACKED_SUFFIX):
        raise click.UsageError(f"{file} does not end in {layout.PACKED_SUFFIX}: say with -o where to unpack it")
    return file.with_name(file.name.removesuffix(layout.PACKED_SUFFIX))
