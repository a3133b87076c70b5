"""`prismdbg list`: runs and capsules in a folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from prismdbg.cli import render
from prismdbg.workflows import shelf
from prismdbg.workflows.agent_sockets import remove_dead_sockets


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path), metavar="[FOLDER]...")
@click.option("--environments", is_flag=True, help="List the container images that replays made, instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(folders: tuple[Path, ...], environments: bool, as_json: bool) -> None:
    """List the runs and capsules in each FOLDER (default: here), oldest first, with what they take on disk."""
    if environments:
        _list_environments(as_json)
        return
    remove_dead_sockets()
    items = [item for folder in folders or (Path(),) for item in shelf.find(folder)]
    if as_json:
        render.emit_json(
            [{**_row(item), "size_bytes": item.size_bytes, "created_ns": item.created_ns} for item in items]
        )
        return
    if not items:
        render.say("no runs and no capsules here")
        return
    rows = [
        (item.kind, render.size(item.size_bytes), render.when(item.created_ns), str(item.path), item.text)
        for item in items
    ]
    render.emit(render.columns(("kind", "size", "made", "path", "what"), rows, right=("size",)))


def _row(item: shelf.Item) -> dict[str, object]:
    return {"kind": item.kind, "path": str(item.path), "text": item.text}


def _list_environments(as_json: bool) -> None:
    from prismdbg.workflows.environment_images import environment_images

    images = environment_images()
    if as_json:
        render.emit_json([asdict(image) for image in images])
        return
    rows = [(render.size(image.size_bytes), render.when(image.created_ns), image.tag) for image in images]
    render.emit(render.columns(("size", "made", "environment"), rows, right=("size",)))
    render.say("`prismdbg rm --environments` removes all but the newest")
