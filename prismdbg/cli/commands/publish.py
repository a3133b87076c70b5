"""`prismdbg publish`: the logs that a node still keeps come into RUN, where its supervisor can no longer do it."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.cli.options.addresses import LocalPath
from prismdbg.cli.terminal import long_work
from prismdbg.jobs.storage.fresh_logs import publish_left
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.render import console


@click.command()
@click.argument("run", type=LocalPath())
@long_work.shown()
def command(run: Path) -> None:
    """Copy the logs that ranks wrote on this node into RUN.

    Example: `prismdbg publish RUN`, on each node that `status` names

    Use it for a job whose ranks wrote into folders of their nodes (--local, or its default), if the supervisor (the
    `prismdbg record` process of this node) was killed, failed before it copied them, or ended before its ranks did.
    Received data and state snapshots are copied, too. The folder on the node is removed when all processes of the job
    have ended there and everything is in RUN. While a process is still running, what was written so far is copied, and
    the folder stays.
    """
    publish_left(RunFolder.existing(run), console.announce)
    console.emit(str(run))
