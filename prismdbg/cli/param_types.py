"""Values people write on the command line, for `type=` of an option: sizes and moments."""

from __future__ import annotations

import re

import click

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment

_SIZE = re.compile(r"([0-9]{1,15})\s*([KMGT]?)(iB|B)?", re.IGNORECASE)
_SHIFT = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def size(text: str) -> int:
    """Bytes: `4GiB`, `512M`, `1000`."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size: write 512MiB or 4GiB")
    return int(match[1]) << _SHIFT[match[2].upper()]


def moment(text: str) -> Moment:
    """`12.345.6`, `12.345` or `12`."""
    try:
        return Moment.parse(str(text))
    except UsageError as error:
        raise click.BadParameter(f"{error}: {error.hint}") from error


def ranks(text: str) -> tuple[int, ...]:
    """`0,2`, `0-3`, or nothing."""
    found: set[int] = set()
    for part in filter(None, str(text).split(",")):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise click.BadParameter(f"{text!r} does not name ranks: write 0,2 or 0-3")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))
