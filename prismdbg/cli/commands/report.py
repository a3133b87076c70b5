"""`prismdbg report`: one page that explains an incident to somebody who has neither the run nor prismdbg."""

from __future__ import annotations

import time
from pathlib import Path

import click

from prismdbg.cli.options import output_file
from prismdbg.cli.options.addresses import Fetched
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.user_code import USER_CODE
from prismdbg.cli.terminal import long_work
from prismdbg.exporters.about import about
from prismdbg.exporters.incident_page import incident_page
from prismdbg.exporters.source import source_at
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.log.columns import while_folded
from prismdbg.render import console


@click.command()
@click.argument("path", type=Fetched(), metavar="RUN|CAPSULE")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE.")
@USER_CODE
@archive_keys
def command(path: Path, output: Path, keys: Keys) -> None:
    """Write an HTML page about an incident, to attach to a ticket.

    Example: `prismdbg report RUN -o incident.html`

    It has the findings of `why`, a timeline, the stacks of a hang, memory, versions, and the commands that replay the
    capsules. It is one file, loads nothing from elsewhere, and runs no script. Secrets found in what comes from the
    program (messages, paths, values) are redacted, but the rules miss some: read the page before you publish it.
    """

    def page() -> str:
        with source_at(path, keys) as source:
            return incident_page(path, source, about(path, source), time.time_ns())

    with long_work.shown():
        text = while_folded(page)
    with output_file.whole(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    console.say(f"{output}: {console.size(output.stat().st_size)}, for any browser")
