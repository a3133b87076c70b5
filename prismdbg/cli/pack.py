"""`prismdbg pack`: one file of a capsule."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.cli import render
from prismdbg.workflows.pack import pack


@click.command()
@click.argument("capsule", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Default: CAPSULE.tar.zst beside it.")
def command(capsule: Path, output: Path | None) -> None:
    """Make one tar.zst of CAPSULE. Every byte is compared with the manifest on the way.

    Prints the path of what was made.
    """
    manifest = Capsule.open(capsule).manifest
    target = output or capsule.resolve().with_name(capsule.resolve().name + layout.PACKED_SUFFIX)
    with render.byte_progress("packing", manifest.size_bytes) as progress:
        size_bytes = pack(capsule, target, progress)
    render.say(f"{render.size(manifest.size_bytes)} packed into {render.size(size_bytes)}")
    if manifest.contains_raw_memory:
        render.say("it holds the rank's raw memory: give it only to those who may see what the rank knew")
    render.emit(str(target))
