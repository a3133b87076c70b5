"""`prismdbg pack`: one file of a capsule, for oneself or for others."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.cli.options.addresses import Fetched, Written, written
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.sharing import for_others
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.jobs.capture.secret_search import report
from prismdbg.jobs.storage.archive_crypto import ENCRYPTED_SUFFIX, Keys, signature_path
from prismdbg.jobs.storage.pack import Seal, opened, pack
from prismdbg.jobs.storage.remote.fetched_cache import is_fetched
from prismdbg.jobs.storage.remote.object_store import Address
from prismdbg.model.plurals import counted
from prismdbg.render import console


@click.command()
@click.argument("capsule", type=Fetched())
@click.option(
    "-o",
    "--output",
    type=Written(),
    metavar="FILE",
    help="Write to FILE.  [default: CAPSULE.tar.zst, or .tar.zst.age]",
)
@click.option("--share", is_flag=True, help="Search for secrets first and refuse to pack if one is found.")
@click.option("--redact", is_flag=True, help="With --share, mask the secrets found in files and received objects.")
@click.option(
    "--share-anyway",
    is_flag=True,
    help="Pack for others without removing anything: FILE contains every secret in CAPSULE.",
)
@click.option(
    "--encrypt-to",
    multiple=True,
    metavar="RECIPIENT",
    help="Encrypt to this age or SSH public key, or to a file of keys.",
)
@click.option(
    "--sign", type=click.Path(path_type=Path), metavar="KEY", help="Sign FILE with this SSH key and write FILE.sig."
)
@archive_keys
@long_work.shown()
def command(
    capsule: Path,
    output: Path | Address | None,
    share: bool,
    redact: bool,
    share_anyway: bool,
    encrypt_to: tuple[str, ...],
    sign: Path | None,
    keys: Keys,
) -> None:
    """Pack CAPSULE (folder or packed file) into one tar.zst file and print its path.

    Example: `prismdbg pack CAPSULE --share --redact`

    Every byte is compared with the manifest. Without --share, the file is for you only: it contains everything in
    CAPSULE, including the secrets that `inspect --secrets` lists. With --share, rules search for secrets, and packing
    fails if CAPSULE contains one. The rules miss some. The memory in a checkpoint cannot be searched completely: use
    --share-anyway for such a capsule.

    --redact changes the packed copy. If the program used a masked value, a replay of the copy behaves differently.
    """
    if redact and not share:
        raise UsageError("--redact needs --share", hint="add --share")
    if share_anyway and (share or redact):
        raise UsageError("--share and --share-anyway cannot be combined", hint="give one of them")
    target = output or _default_target(capsule, is_encrypted=bool(encrypt_to))
    if sign is not None and isinstance(target, Address):
        raise UsageError(
            "--sign cannot write FILE.sig into an object store",
            hint="write to a local file with -o, then upload FILE and FILE.sig",
        )
    with opened(capsule, keys) as whole:
        with (
            written(target) as path,
            for_others(whole, capsule, redact=redact) if share else nullcontext(whole) as packed,
        ):
            size_bytes = _pack(packed, path, Seal(recipients=encrypt_to, key=sign))
        kept = len(report(whole).kept) if share_anyway else None
    console.say(f"{console.size(whole.manifest.size_bytes)} packed into {console.size(size_bytes)}")
    _warn(whole, kept)
    if sign is not None and isinstance(target, Path):
        console.say(f"signed: {signature_path(target)}")
    console.emit(str(target))


def _default_target(capsule: Path, *, is_encrypted: bool) -> Path:
    """Beside the capsule, which may be a packed file itself; here where it was fetched."""
    suffix = layout.PACKED_SUFFIX + (ENCRYPTED_SUFFIX if is_encrypted else "")
    named = capsule.resolve().name.removesuffix(ENCRYPTED_SUFFIX).removesuffix(layout.PACKED_SUFFIX)
    return (Path.cwd() if is_fetched(capsule) else capsule.resolve().parent) / (named + suffix)


def _warn(capsule: Capsule, kept: int | None) -> None:
    """`kept`: how many secrets were packed knowingly; None where nobody said so."""
    if kept is not None:
        console.say(f"it contains {counted(kept, 'known or possible secret')}: prismdbg inspect --secrets")
    elif capsule.manifest.contains_raw_memory:
        console.say(
            "it contains the rank's raw memory: share it only with people who may see everything the rank had in memory"
        )


def _pack(capsule: Capsule, target: Path, seal: Seal) -> int:
    with console.byte_progress("packing", capsule.manifest.size_bytes) as progress:
        return pack(capsule.path, target, progress, seal)
