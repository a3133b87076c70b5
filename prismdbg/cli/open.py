"""`prismdbg open`: what a capsule recorded, on a screen to walk through. Runs nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from prismdbg.cli.param_types import moment
from prismdbg.model.moment import Moment
from prismdbg.workflows.pack import opened


@click.command()
@click.argument("capsule", type=click.Path(path_type=Path))
@click.option("--at", type=moment, help="Where the cursor is at first, for instance 12.3. [default: the incident]")
@click.option("--web", is_flag=True, help="In a browser of this machine, at an address that is printed.")
@click.option("--port", type=click.IntRange(1, 65535), default=8765, show_default=True, help="Of --web.")
def command(capsule: Path, at: Moment | None, web: bool, port: int) -> int:
    """Look at CAPSULE, a folder or a packed file: its time line, collectives, stacks, and what the rank received.

    Nothing is run and nothing of the capsule is trusted. Where there is no terminal, prints the collectives as a table.
    """
    if web:
        from prismdbg_tui.web import serve

        return serve(["open", str(capsule.absolute()), *(["--at", str(at)] if at else [])], port, sys.stderr)
    from prismdbg_tui import start

    with opened(capsule) as whole:
        return start.look(whole, capsule.name or str(capsule), at)
