"""`prismdbg open`: what a capsule recorded, on a screen to walk through. Runs nothing."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.workflows.pack import opened


@click.command()
@click.argument("capsule", type=click.Path(path_type=Path))
def command(capsule: Path) -> int:
    """Look at CAPSULE, a folder or a packed file: its time line, collectives, stacks, and what the rank received.

    Nothing is run and nothing of the capsule is trusted. Where there is no terminal, prints the collectives as a table.
    """
    from prismdbg_tui import start

    with opened(capsule) as whole:
        return start.look(whole, capsule.name or str(capsule))
