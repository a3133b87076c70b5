"""`prismdbg rm`: removes runs and capsules, or what exceeds a quota."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.cli import render
from prismdbg.cli.param_types import size
from prismdbg.workflows import shelf


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--keep", type=click.IntRange(min=1), help="Keep the newest N capsules of each folder.", metavar="N")
@click.option("--keep-bytes", type=size, help="Keep the newest capsules of each folder that fit into this.")
@click.option("--force", is_flag=True, help="Also remove a run whose job still lives.")
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be removed, remove nothing.")
def command(paths: tuple[Path, ...], keep: int | None, keep_bytes: int | None, force: bool, dry_run: bool) -> None:
    """Remove each of PATHS, a run or a capsule. Nothing else is ever removed.

    With --keep or --keep-bytes PATHS are folders, and the oldest capsules in them go until the rest fits; the
    newest always stays.
    """
    if keep is None and keep_bytes is None:
        items = [_described(path) for path in paths]
    else:
        quota = shelf.Quota(count=keep, size_bytes=keep_bytes)
        items = [item for folder in paths for item in shelf.excess(shelf.find(folder), quota)]
    for item in items:
        if not dry_run:
            shelf.remove(item.path, force=force)
        render.emit(f"{item.path}  {render.size(item.size_bytes)}")
    total = render.size(sum(item.size_bytes for item in items))
    render.say(f"{'would free' if dry_run else 'freed'} {total}")


def _described(path: Path) -> shelf.Item:
    item = shelf.describe(path)
    if item is None:
        raise click.UsageError(f"{path} is neither a run nor a capsule: `prismdbg list` says what there is")
    return item
