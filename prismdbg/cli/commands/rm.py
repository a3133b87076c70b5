"""`prismdbg rm`: removes runs and capsules, or what exceeds a quota, or old container images of replays."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.cli.options.addresses import LocalPath
from prismdbg.cli.options.param_types import size
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.jobs.capture.agent_sockets import remove_dead_sockets
from prismdbg.jobs.storage import inventory
from prismdbg.model.meanwhile import one_by_one
from prismdbg.model.plain_text import one_line
from prismdbg.render import console


@click.command()
@click.argument("paths", nargs=-1, type=LocalPath())
@click.option("--keep", type=click.IntRange(min=1), help="Keep the newest N capsules of each folder.", metavar="N")
@click.option("--keep-bytes", type=size, help="Keep the newest capsules of each folder that fit into SIZE.")
@click.option(
    "--environments",
    is_flag=True,
    help="Remove the container images of replays, except the newest one or the newest --keep N.",
)
@click.option("--force", is_flag=True, help="Remove a run even if its job still runs, or what cannot be read.")
@click.option("-n", "--dry-run", is_flag=True, help="List the paths but remove nothing.")
@long_work.shown()
def command(
    paths: tuple[Path, ...],
    keep: int | None,
    keep_bytes: int | None,
    environments: bool,
    force: bool,
    dry_run: bool,
) -> None:
    """Remove PATHS, which are runs or capsules. Nothing else is ever removed.

    Example: `prismdbg rm RUN`, or `prismdbg rm RUN/capsules --keep 3`

    With --keep or --keep-bytes, PATHS are folders, and their oldest capsules are removed until the rest fits. The
    newest capsule always stays. --environments takes no PATHS. Replays in Docker build a container image again when
    they need it.

    A run or capsule that cannot be read may be something else: --keep and --keep-bytes neither count nor remove it; to
    remove it, give its path and --force. The signature FILE.sig of a packed capsule is removed together with it.
    """
    if environments:
        if paths or keep_bytes is not None:
            raise UsageError(
                "--environments takes no PATHS and no --keep-bytes", hint="use it alone, or with --keep and --dry-run"
            )
        _remove_environments(keep or 1, dry_run)
        return
    if not paths:
        raise UsageError("nothing to remove", hint="give PATHS or --environments")
    remove_dead_sockets()
    if keep is None and keep_bytes is None:
        items = [inventory.removable(path, force=force) for path in one_by_one(paths, "measuring runs and capsules")]
    else:
        quota = inventory.Quota(count=keep, size_bytes=keep_bytes)
        items = [item for folder in paths for item in inventory.excess(inventory.find(folder), quota)]
    for item in one_by_one(items, "removing"):
        if not dry_run:
            inventory.remove(item.path, force=force)
        console.emit(f"{one_line(str(item.path))}  {console.size(item.size_bytes)}")
    total = console.size(sum(item.size_bytes for item in items))
    console.say(f"{'would free' if dry_run else 'freed'} {total}")


def _remove_environments(keep: int, dry_run: bool) -> None:
    """Sizes first: removing takes minutes, and each must be made again where it is needed."""
    from prismdbg.jobs.replay.environment_images import environment_images, remove_images

    images = environment_images()
    old = images[: max(len(images) - keep, 0)]
    total = console.size(sum(image.size_bytes for image in old))
    console.say(f"{len(images)} container images; the oldest {len(old)} ({total}) can be removed")
    if dry_run:
        for image in old:
            console.emit(f"{image.tag}  {console.size(image.size_bytes)}")
        return
    remove_images(
        old,
        lambda image, went: console.emit(
            f"{image.tag}  {console.size(image.size_bytes)}{'' if went else '  kept: a container uses it'}"
        ),
    )
