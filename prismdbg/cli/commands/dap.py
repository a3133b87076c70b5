"""`prismdbg dap`: the debugger for editors, in the Debug Adapter Protocol on standard input and output."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.cli.options.addresses import Fetched, as_given
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.capsule_or_run import RANK_OF_RUN, capsule_at
from prismdbg.cli.options.limit_options import limits
from prismdbg.cli.options.param_types import moment, seconds
from prismdbg.cli.options.place_options import ALLOW_WRITES, RUNTIME, WITH_FILE
from prismdbg.cli.options.user_code import USER_CODE
from prismdbg.dap.launch import Launch
from prismdbg.dap.server import serve_stdio
from prismdbg.jobs.replay.span import require_inside
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.pack import read_manifest
from prismdbg.model.moment import Moment
from prismdbg.runtime.limits import Asked


@click.command()
@click.argument("capsule", type=Fetched(), metavar="[CAPSULE|RUN]", required=False)
@RANK_OF_RUN
@RUNTIME
@ALLOW_WRITES
@click.option(
    "--timeout",
    type=seconds,
    default=600.0,
    show_default=True,
    help="Stop waiting after this time without a collective.",
)
@limits
@click.option("--at", type=moment, metavar="MOMENT", help="Go to MOMENT first.")
@WITH_FILE
@USER_CODE
@archive_keys
def command(
    capsule: Path | None,
    rank: int | None,
    runtime: str | None,
    allow_writes: bool,
    timeout: float,
    at: Moment | None,
    with_files: tuple[str, ...],
    keys: Keys,
    limits: Asked,
) -> None:
    """Debug the rank in CAPSULE from an editor.

    Example: `prismdbg dap CAPSULE`

    The editor starts this command and speaks the Debug Adapter Protocol with it on standard input and output. Without
    CAPSULE, the launch configuration of the editor names it. The replay ends when the editor disconnects or exits. To
    serve an editor on a port, use `prismdbg debug --dap PORT`.
    """
    if capsule is not None:
        capsule, rank = capsule_at(capsule, rank), None
        manifest = read_manifest(capsule, keys)  # what cannot be read is an error before an editor waits
        if at is not None:
            require_inside(manifest, capsule.name, "--at", at)
    serve_stdio(
        Launch(
            path=capsule,
            given=as_given("capsule") if capsule is not None else "",
            rank=rank,
            runtime=runtime or "",
            allow_writes=allow_writes,
            bound_s=timeout,
            at=at,
            with_files=with_files,
            limits=limits,
            keys=keys,
        )
    )
