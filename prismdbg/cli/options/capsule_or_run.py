"""Where a CAPSULE is asked for a RUN will do, with --rank: the capsule of that rank, found or made."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.cli.options.addresses import Fetched
from prismdbg.jobs.rank_capsule import capsule_of
from prismdbg.render import console

CAPSULE_OR_RUN = click.argument("capsule", type=Fetched(), metavar="CAPSULE|RUN")
RANK_OF_RUN = click.option(
    "--rank",
    type=click.IntRange(min=0),
    metavar="N",
    help="Select a rank of RUN; optional if there is only one.",
)


def capsule_at(path: Path, rank: int | None) -> Path:
    """What was chosen, or made, is said."""
    return capsule_of(path, rank, console.announce)
