"""The options with which an encrypted or signed archive is read: the same on every command that takes one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.render import console

_IDENTITY = click.option(
    "--identity",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Decrypt a packed CAPSULE with this age or SSH private key.",
)
_SIGNERS = click.option(
    "--require-signature",
    type=click.Path(path_type=Path),
    metavar="SIGNERS",
    help="Refuse a packed CAPSULE that is not signed by a key in SIGNERS, an allowed-signers file of ssh-keygen.",
)


def archive_keys(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives the command both as `keys`."""

    @wraps(command)
    def with_keys(*, identity: Path | None, require_signature: Path | None, **options: Any) -> Any:
        keys = Keys(identity=identity, signers=require_signature, say=console.announce)
        return command(keys=keys, **options)

    return _IDENTITY(_SIGNERS(with_keys))


def as_options(keys: Keys) -> list[str]:
    """For a command line of our own."""
    given = (("--identity", keys.identity), ("--require-signature", keys.signers))
    return [word for name, path in given if path is not None for word in (name, str(path.absolute()))]
