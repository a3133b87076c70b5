"""`prismdbg gather`: the runs of a job's nodes that see no common folder, as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from prismdbg.cli.options.addresses import Written, written
from prismdbg.cli.terminal import long_work
from prismdbg.jobs.storage.gather import SSH, gather
from prismdbg.jobs.storage.inventory import is_recording
from prismdbg.jobs.storage.job_nodes import node_folders, supervisor_report
from prismdbg.jobs.storage.remote.object_store import Address, fetch
from prismdbg.jobs.storage.remote.upload import push
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.plurals import counted
from prismdbg.render import console


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="HOST:RUN...")
@click.option("-o", "--output", type=Written(), required=True, metavar="RUN", help="Write to this new folder.")
@click.option("--ssh", default=SSH, metavar="COMMAND", help="Connect with this command, as in 'ssh -p 2222'.")
@long_work.shown()
def command(sources: tuple[str, ...], output: Path | Address, ssh: str) -> None:
    """Copy the RUN of each node over ssh and combine them into one.

    Example: `prismdbg gather node1:/tmp/run node2:/tmp/run -o RUN`

    Use it after the job has ended, if its nodes share no file system and each recorded into a folder of its own.
    HOST:RUN is copied over ssh with rsync, which must be installed on both sides. A source without HOST is on this
    machine, and s3://BUCKET/RUN is in an object store. The output may be in an object store, too: `gather RUN -o
    s3://BUCKET/RUN` uploads a run, and continues an upload that was interrupted.
    """
    local = [source if (at := Address.of(source)) is None else str(fetch(at, console.announce)) for source in sources]
    whole = _complete(local) if isinstance(output, Address) else None
    if isinstance(output, Address) and whole is not None:
        push(whole.path, output, console.announce)
        _say_what(whole)
    else:
        with written(output) as path:
            _say_what(gather(local, path, console.announce, ssh))
    console.emit(str(output))


def _complete(sources: Sequence[str]) -> RunFolder | None:
    """The one RUN of this machine that is uploaded, if its job has ended: it needs no copy."""
    run = RunFolder(Path(sources[0]).resolve())
    if len(sources) > 1 or not run.run_json.is_file() or is_recording(run, supervisor_report(run)):
        return None
    return run


def _say_what(run: RunFolder) -> None:
    nodes = len(node_folders(run)) or 1  # a job of one node has no folder for it
    console.say(f"{counted(nodes, 'node')}, {counted(len(run.rank_folders()), 'rank')}")
