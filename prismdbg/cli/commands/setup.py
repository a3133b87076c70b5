"""`prismdbg setup`: what is built once per machine."""

from __future__ import annotations

import sys

import click

from prismdbg.cli.exit_codes import ExitCode
from prismdbg.jobs.record.setup import set_up
from prismdbg.render import console


@click.command()
@click.option(
    "--python",
    default=sys.executable,
    show_default="this one",
    metavar="PYTHON",
    help="Build for this Python; use the one of the job.",
)
@click.option("--strict", is_flag=True, help="Exit 4 if a part could not be built.")
@click.option("--json", "as_json", is_flag=True, help="Print the parts as JSON.")
def command(python: str, strict: bool, as_json: bool) -> int:
    """Build the native recorder for the job's Python and torch, and the CRIU bundle.

    Example: `prismdbg setup`

    Parts that exist are not built again. If a part cannot be built, the output gives the reason and the fallback;
    `prismdbg doctor` shows more.
    """
    parts = set_up(python, console.announce)
    with console.also_unread():
        if as_json:
            listed = [{"name": p.name, "place": p.place, "lacking": p.lacking, "instead": p.instead} for p in parts]
            console.emit_json({"parts": listed})
        for part in parts:
            if part.lacking:
                console.say(f"lacking: {part.name}: {part.lacking}; {part.instead}")
            elif not as_json:
                console.emit(f"{part.name}  {part.place}")
    return ExitCode.LACKING if strict and any(part.lacking for part in parts) else ExitCode.OK
