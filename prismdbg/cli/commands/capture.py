"""`prismdbg capture`: one rank out of a job that runs, while it goes on."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.capsule.manifest import Origin
from prismdbg.cli.options.param_types import seconds
from prismdbg.jobs.capture.capture import CaptureRequest, capture
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.render import console


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--rank", type=click.IntRange(min=0), required=True, help="Which one.")
@click.option(
    "--window",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="STEPS",
    help="How many whole steps it covers.",
)
@click.option(
    "--origin",
    type=click.Choice(["image", "start"]),
    default="image",
    show_default=True,
    help="Where the capsule begins: at an image of the live process, or at the program's start.",
)
@click.option("--timeout", type=seconds, default=600.0, show_default=True, help="Seconds to wait for the window.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="CAPSULE", help="New folder.")
def command(run: Path, rank: int, window: int, origin: str, timeout: float, output: Path) -> None:
    """Take RANK of the recorded job in RUN into CAPSULE; the job goes on.

    The rank stands still only while its image is taken. `--origin start` needs no image and no privilege: the
    capsule replays from the program's first line, if RUN was recorded with --window all.

    Exits 3 when what was kept cannot be replayed; it is kept as CAPSULE.evidence.
    """
    request = CaptureRequest(
        run=RunFolder.existing(run),
        rank=rank,
        output=output,
        window_steps=window,
        origin=Origin(origin),
        timeout_s=timeout,
    )
    made = capture(request, lambda text: console.say(f"prismdbg: {text}"))
    manifest = made.manifest
    console.say(
        f"capsule of rank {rank}, {manifest.moment_a} to {manifest.moment_b}, {console.size(manifest.size_bytes)}"
    )
    console.emit(str(output))
