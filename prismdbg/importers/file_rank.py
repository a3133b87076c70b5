"""The rank that a file's name ends with."""

from __future__ import annotations

import re
from pathlib import Path

from prismdbg.capsule.limits import MAX_IMPORTED_RANKS
from prismdbg.errors import UsageError


def rank_of_name(path: Path, pattern: re.Pattern[str], what: str, example: str) -> int:
    """pattern: finds it as its first group. what: kind of the file. `UsageError` where it has none, or a date, say."""
    hint = f"name each {what.rpartition(' ')[2]} after its rank, as in {example}"
    if (found := pattern.search(path.name)) is None:
        raise UsageError(f"the name of the {what} {path.name} does not end with a rank", hint=hint)
    if (rank := int(found[1])) >= MAX_IMPORTED_RANKS:
        raise UsageError(
            f"the name of the {what} {path.name} ends with {rank}, which is not a rank: ranks go up to "
            f"{MAX_IMPORTED_RANKS - 1:,}",
            hint=hint,
        )
    return rank
