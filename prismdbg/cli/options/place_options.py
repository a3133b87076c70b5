"""Options of several commands that say where a replay runs, and where its screen is shown."""

from __future__ import annotations

import click

from prismdbg.runtime.names import RUNTIMES

_RUNTIMES = click.Choice(RUNTIMES)

RUNTIME = click.option(
    "--runtime",
    type=_RUNTIMES,
    help="Run the rank in a container, in namespaces of this machine, or as a plain process.  "
    "[default: the first that works here]",
)
RUNTIME_OF_CAPSULE = click.option(
    "--runtime", type=_RUNTIMES, help="Replay CAPSULE in this runtime.  [default: the first that works]"
)
ALLOW_WRITES = click.option(
    "--allow-writes", is_flag=True, help="With --runtime plain, let the process repeat the program's side effects."
)
WITH_FILE = click.option(
    "--with-file", "with_files", multiple=True, metavar="PATH[=MINE]",
    help="Provide the credentials file PATH, which the capsule lacks, from your file MINE.  [default: PATH]",
)  # fmt: skip
WEB = click.option("--web", is_flag=True, help="Serve the screen to a browser on this machine and print the address.")
PORT = click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8765,
    show_default=True,
    metavar="N",
    help="Use this port for --web.",
)
