"""`prismdbg list`: runs and capsules in a folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from prismdbg.cli.options.addresses import LocalPath
from prismdbg.cli.terminal import long_work
from prismdbg.jobs.capture.agent_sockets import remove_dead_sockets
from prismdbg.jobs.storage import inventory
from prismdbg.render import console


@click.command()
@click.argument("folders", nargs=-1, type=LocalPath(), metavar="[FOLDER]...")
@click.option("--environments", is_flag=True, help="List the container images of replays instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@long_work.shown()
def command(folders: tuple[Path, ...], environments: bool, as_json: bool) -> None:
    """List the runs and capsules in each FOLDER, oldest first, with their sizes on disk.

    Example: `prismdbg list runs`

    The default is the current folder.
    """
    if environments:
        _list_environments(as_json)
        return
    remove_dead_sockets()
    items = [item for folder in folders or (Path(),) for item in inventory.find(folder)]
    if as_json:
        console.emit_json(
            [{**_row(item), "size_bytes": item.size_bytes, "created_ns": item.created_ns} for item in items]
        )
        return
    if not items:
        console.say("no runs or capsules found")
        return
    rows = [
        (item.kind, console.size(item.size_bytes), console.when(item.created_ns), str(item.path), item.text)
        for item in items
    ]
    header, width = ("kind", "on disk", "created", "path", "content"), console.terminal_width()
    console.emit(console.columns(header, rows, right=("on disk",), width=width))


def _row(item: inventory.Item) -> dict[str, object]:
    return {"kind": item.kind, "path": str(item.path), "text": item.text}


def _list_environments(as_json: bool) -> None:
    from prismdbg.jobs.replay.environment_images import environment_images

    images = environment_images()
    if as_json:
        console.emit_json([asdict(image) for image in images])
        return
    rows = [(console.size(image.size_bytes), console.when(image.created_ns), image.tag) for image in images]
    console.emit(console.columns(("size", "created", "environment"), rows, right=("size",)))
    console.say("`prismdbg rm --environments` removes all but the newest")
