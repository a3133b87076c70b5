"""`prismdbg capture`: one rank out of a job that runs, while it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from prismdbg.capsule.manifest import Origin
from prismdbg.cli.options.addresses import LocalPath
from prismdbg.cli.options.param_types import seconds
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.jobs.capture.awaited import Awaited
from prismdbg.jobs.capture.capture import CaptureRequest, capture, require_new
from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from prismdbg.render import console

_ORIGINS = {origin.word: origin for origin in (Origin.IMAGE, Origin.STATE, Origin.START)}


class _OriginChoice(click.Choice[str]):
    """The words for origins. A checkpoint may also be given by its name in a manifest, `image`."""

    def __init__(self) -> None:
        super().__init__(tuple(_ORIGINS))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(Origin.IMAGE.word if value == Origin.IMAGE else value, param, ctx)


@click.command()
@click.argument("run", type=LocalPath())
@click.option("--rank", type=click.IntRange(min=0), required=True, metavar="N", help="Capture this rank.")
@click.option(
    "--window",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="STEPS",
    help="Include STEPS complete steps after the checkpoint or state snapshot. Not with --origin start, which includes "
    "all steps.",
)
@click.option(
    "--origin",
    type=_OriginChoice(),
    help="Start the capsule at a checkpoint of the live process, at a state snapshot (state) or at the start of the "
    "program (start).  [default: state, if RUN was recorded with --state-every; otherwise checkpoint]",
)
@click.option("--wait", is_flag=True, help="Wait until the job has started and the rank has issued a collective.")
@click.option("--at", type=click.IntRange(min=1), metavar="STEP", help="Wait until the rank is in this step.")
@click.option(
    "--timeout",
    type=seconds,
    default=600.0,
    show_default=True,
    help="Wait at most this long for --wait and --at, and again for the steps of --window.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="CAPSULE",
    help="Write to this new folder.",
)
def command(
    run: Path, rank: int, window: int, origin: str | None, wait: bool, at: int | None, timeout: float, output: Path
) -> None:
    """Capture one rank of the job recorded in RUN as CAPSULE. The job continues.

    Example: `prismdbg capture RUN --rank 2 -o CAPSULE`, or add `--at 500` to capture it in step 500

    The rank pauses only while its checkpoint is taken. `--origin start` needs no checkpoint and no privileges: the
    capsule replays from the first line of the program. RUN must then have been recorded with --window all.

    `--origin state` needs no privileges either, and the rank is not paused. RUN must have been recorded with
    --state-every, and the program must call `prismdbg.restore_point`, or train with a framework that prismdbg knows.

    If the job has several nodes, the `prismdbg record` process of the rank's node takes the checkpoint.

    If the capsule cannot be replayed, the exit code is 3 and the data is kept as CAPSULE.evidence.
    """
    _require_meaning_of_window(origin)
    require_new(output)
    if wait or at is not None:
        with long_work.shown():
            Awaited(run=run, rank=rank, step=at or 0, timeout_s=timeout).wait(console.announce)
    folder = RunFolder.existing(run)
    keeps_states = bool(read_json(folder.config).get("state_every"))
    request = CaptureRequest(
        run=folder,
        rank=rank,
        output=output,
        window_steps=window,
        origin=_ORIGINS[origin] if origin else Origin.STATE if keeps_states else Origin.IMAGE,
        timeout_s=timeout,
    )
    with long_work.shown():
        made = capture(request, console.announce)
    manifest = made.manifest
    console.say(
        f"capsule of rank {rank}, {manifest.moment_a} to {manifest.moment_b}, {console.size(manifest.size_bytes)}"
    )
    console.emit(str(output))


def _require_meaning_of_window(origin: str | None) -> None:
    """A default of the user's configuration file may stand beside any origin."""
    given = click.get_current_context().get_parameter_source("window") is ParameterSource.COMMANDLINE
    if given and origin == Origin.START:
        raise UsageError(
            "--window cannot be combined with --origin start: such a capsule includes all steps so far",
            hint="leave --window out",
        )
