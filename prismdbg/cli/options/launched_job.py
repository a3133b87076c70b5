"""What every command has that starts a job of the user's own: its command line, and the RUN that it fills."""

from __future__ import annotations

import click

from prismdbg.cli.options.addresses import LocalPath

# Context settings: options in the job's own command line are the job's.
TAKES_JOB = {"ignore_unknown_options": True, "allow_interspersed_args": False}
JOB = click.argument("job", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
NEW_RUN = click.option(
    "-o", "--output", type=LocalPath(), required=True, metavar="RUN", help="Write to this new folder."
)
