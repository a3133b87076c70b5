"""`prismdbg build`: the container image that a capsule runs in."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import click

from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.jobs.replay.build import build_image
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.oci_layout import write_layout
from prismdbg.jobs.storage.pack import opened
from prismdbg.model.plurals import counted
from prismdbg.render import console


@click.command()
@click.argument("capsule", type=click.Path(path_type=Path))
@click.option(
    "--push",
    metavar="oci:DIR[:TAG]",
    help="Write CAPSULE itself as an OCI image into the new folder DIR, without Docker.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@archive_keys
@long_work.shown()
def command(capsule: Path, push: str | None, as_json: bool, keys: Keys) -> None:
    """Build the container image for CAPSULE and print its tag.

    Example: `prismdbg build CAPSULE`

    The container image contains the installed files that the captured rank used. It needs no base image and no
    registry. The capsule itself is mounted into the container at replay. To move both to another machine, use
    `docker save TAG` and `prismdbg pack CAPSULE`.

    With --push, the packed CAPSULE becomes the one layer of an OCI image, and no container image is built. `skopeo copy
    oci:DIR:latest docker://REGISTRY/NAME` takes it to a registry. It contains all that CAPSULE contains, secrets too.
    """
    if push is not None:
        target, tag = _layout(push)
        with opened(capsule, keys) as whole:
            pushed = write_layout(whole, target, tag)
        if as_json:
            console.emit_json({**asdict(pushed), "path": str(pushed.path)})
            return
        console.say(f"{pushed.path}: {console.size(pushed.size_bytes)}, tag {pushed.tag}")
        console.emit(pushed.digest)
        return
    with opened(capsule, keys) as whole:
        built = build_image(whole, console.announce)
    if as_json:
        console.emit_json(asdict(built))
        return
    made = "created" if built.made else "already exists"
    console.say(f"{made}: {counted(built.files, 'file')}, {console.size(built.size_bytes)}")
    console.emit(built.tag)


def _layout(text: str) -> tuple[Path, str]:
    """Folder and tag of `oci:DIR[:TAG]`, as skopeo and podman write it."""
    match = re.fullmatch(r"oci:(?P<folder>[^:]+)(?::(?P<tag>[\w.-]{1,128}))?", text)
    if match is None:
        raise UsageError(
            f"--push {text!r} is not oci:DIR or oci:DIR:TAG", hint="write --push oci:DIR; then: skopeo copy"
        )
    return Path(match["folder"]), match["tag"] or "latest"
