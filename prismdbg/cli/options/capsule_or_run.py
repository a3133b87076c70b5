"""Where a CAPSULE is asked for a RUN will do, with --rank: the capsule of that rank, found or made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from prismdbg.cli.options.addresses import Fetched
from prismdbg.render import console

CAPSULE_OR_RUN = click.argument("capsule", type=Fetched(), metavar="CAPSULE|RUN")
RANK_OF_RUN = click.option(
    "--rank",
    type=click.IntRange(min=0),
    metavar="N",
    help="Select a rank of RUN; optional if there is only one.",
)


def capsule_at(path: Path, rank: int | None, said: list[str] | None = None) -> Path:
    """What was chosen, or made, is said, and added to `said`."""
    from prismdbg.jobs.rank_capsule import capsule_of  # all that makes a capsule: `open` of a run needs none of it

    return capsule_of(path, rank, _telling(said))


def shown_capsule_at(path: Path, rank: int | None, said: list[str] | None = None) -> Path:
    """As `capsule_at`, for whoever only looks: of a rank that cannot be replayed, its log."""
    from prismdbg.jobs.rank_capsule import shown_capsule_of

    return shown_capsule_of(path, rank, _telling(said))


def _telling(said: list[str] | None) -> Callable[[str], None]:
    def tell(text: str) -> None:
        console.announce(text)
        if said is not None:
            said.append(text)

    return tell
