"""`prismdbg build`: the container image that a capsule runs in."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.jobs.replay.build import build_image
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.pack import opened
from prismdbg.model.plurals import counted
from prismdbg.render import console


@click.command()
@click.argument("capsule", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@archive_keys
def command(capsule: Path, as_json: bool, keys: Keys) -> None:
    """Build the container image for CAPSULE and print its tag.

    The container image contains the installed files that the captured rank used. It needs no base image and no
    registry. The capsule itself is mounted into the container at replay. To move both to another machine, use
    `docker save TAG` and `prismdbg pack CAPSULE`.
    """
    with opened(capsule, keys) as whole:
        built = build_image(whole, console.announce)
    if as_json:
        console.emit_json(asdict(built))
        return
    made = "created" if built.made else "already exists"
    console.say(f"{made}: {counted(built.files, 'file')}, {console.size(built.size_bytes)}")
    console.emit(built.tag)
