"""`prismdbg build`: the container image that a capsule runs in."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from prismdbg.capsule.partial import temporary_folder
from prismdbg.cli.options.addresses import Fetched
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.sharing import for_others
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.jobs.replay.build import build_image
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.pack import opened
from prismdbg.jobs.storage.remote import image_registry, skopeo
from prismdbg.jobs.storage.remote.image_registry import ImageAddress
from prismdbg.jobs.storage.remote.oci_image import Pushed
from prismdbg.jobs.storage.remote.oci_layout import write_layout
from prismdbg.model.plurals import counted
from prismdbg.render import console


@click.command()
@click.argument("capsule", type=Fetched())
@click.option(
    "--push",
    metavar="IMAGE",
    help="Push CAPSULE itself as an OCI image, to a registry (docker://HOST/NAME[:TAG]) or into a new folder "
    "(oci:DIR[:TAG]).",
)
@click.option("--redact", is_flag=True, help="Before pushing to a registry, mask the secrets found in CAPSULE.")
@click.option(
    "--share-anyway", is_flag=True, help="Push to a registry without removing anything, secrets and memory included."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@archive_keys
@long_work.shown()
def command(capsule: Path, push: str | None, redact: bool, share_anyway: bool, as_json: bool, keys: Keys) -> None:
    """Build the container image for CAPSULE and print its tag.

    Example: `prismdbg build CAPSULE`

    The container image contains the installed files that the captured rank used. It needs no base image and no
    registry. The capsule itself is mounted into the container at replay. To move both to another machine, use
    `docker save TAG` and `prismdbg pack CAPSULE`.

    With --push, the packed CAPSULE becomes the one layer of an OCI image, and no container image is built. oci:DIR
    needs no other program and contains everything in CAPSULE, including secrets. Pushing to a registry needs skopeo,
    uses the login of `skopeo login` or `docker login`, and is refused if CAPSULE contains known secrets, as with `pack
    --share`. `replay` and the other commands that read a capsule accept its address: `prismdbg replay
    docker://HOST/NAME:TAG`.
    """
    if push is not None:
        _push(capsule, keys, push, _Secrets(redact=redact, share_anyway=share_anyway), as_json=as_json)
        return
    if redact or share_anyway:
        raise UsageError("--redact and --share-anyway need --push", hint="add --push docker://HOST/NAME:TAG")
    with opened(capsule, keys) as whole:
        built = build_image(whole, console.announce)
    if as_json:
        console.emit_json(asdict(built))
        return
    made = "created" if built.made else "already exists"
    console.say(f"{made}: {counted(built.files, 'file')}, {console.size(built.size_bytes)}")
    console.emit(built.tag)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Secrets:
    redact: bool
    share_anyway: bool

    def require_fitting(self, *, in_registry: bool) -> None:
        if self.redact and self.share_anyway:
            raise UsageError("--redact and --share-anyway cannot be combined", hint="give one of them")
        if (self.redact or self.share_anyway) and not in_registry:
            raise UsageError(
                "--redact and --share-anyway are for a registry; oci:DIR contains all that CAPSULE contains",
                hint="leave them out, or run `prismdbg pack --share` first and push its file",
            )


def _push(capsule: Path, keys: Keys, target: str, secrets: _Secrets, *, as_json: bool) -> None:
    secrets.require_fitting(in_registry=not target.startswith("oci:"))
    if target.startswith("oci:"):
        folder, tag = _layout(target)
        with opened(capsule, keys) as whole:
            made = write_layout(whole, folder, tag)
        _say({**asdict(made), "path": str(made.path)}, str(made.path), made, as_json=as_json)
        return
    address = _image(target)
    skopeo.require()  # before a large capsule is packed in vain
    with opened(capsule, keys) as whole, temporary_folder("image") as temporary:
        with (
            nullcontext(whole) if secrets.share_anyway else for_others(whole, capsule, redact=secrets.redact) as shared
        ):
            made = write_layout(shared, temporary / "image", address.tag)
        image_registry.push(made, address)
    pushed = {"address": str(address), "tag": made.tag, "digest": made.digest, "size_bytes": made.size_bytes}
    _say(pushed, str(address), made, as_json=as_json)


def _say(values: dict[str, object], target: str, made: Pushed, *, as_json: bool) -> None:
    if as_json:
        console.emit_json(values)
        return
    console.say(f"{target}: {console.size(made.size_bytes)}, tag {made.tag}")
    console.emit(made.digest)


def _image(target: str) -> ImageAddress:
    try:
        address = ImageAddress.of(target)
    except UsageError as error:
        raise UsageError(f"--push {error.bare}", hint=f"{error.hint}; write oci:DIR for a folder") from error
    if not address.tag:
        raise UsageError(f"--push {target} has a digest", hint="give a tag: the digest is that of what is pushed")
    return address


def _layout(text: str) -> tuple[Path, str]:
    """Folder and tag of `oci:DIR[:TAG]`, as skopeo and podman write it."""
    match = re.fullmatch(r"oci:(?P<folder>[^:]+)(?::(?P<tag>[\w.-]{1,128}))?", text)
    if match is None:
        raise UsageError(
            f"--push {text!r} is not oci:DIR or oci:DIR:TAG", hint="write --push oci:DIR; then: skopeo copy"
        )
    return Path(match["folder"]), match["tag"] or "latest"
