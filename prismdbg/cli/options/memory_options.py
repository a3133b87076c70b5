"""Options of `prismdbg record` and `prismdbg emulate`: a real rank and an emulated one are traced and capped alike."""

from __future__ import annotations

import click

from prismdbg.cli.options.param_types import size

MEMORY = click.option("--memory", is_flag=True, help="Trace operators, allocations and frees from the start.")
MEMORY_CAP = click.option(
    "--memory-cap",
    type=size,
    default="0",
    metavar="SIZE",
    help="Limit the memory of each rank's program to SIZE; implies --memory.  [default: no limit]",
)
