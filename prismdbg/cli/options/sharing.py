"""A capsule that leaves for others: searched for secrets first, which the output names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.jobs.capture.secret_search import report
from prismdbg.jobs.capture.share import masked, require_shareable
from prismdbg.model.plurals import counted
from prismdbg.render import console


@contextmanager
def for_others(capsule: Capsule, named: Path, *, redact: bool) -> Iterator[Capsule]:
    """The capsule, which the user calls `named`, or a copy with what was found masked. `SecretsKept` where a secret is
    left."""
    if capsule.manifest.contains_raw_memory:
        console.say(f"searching {console.size(capsule.manifest.size_bytes)}, including the rank's raw memory")
    found = report(capsule)
    if found.unsearched:
        console.say(
            f"not searched completely: {counted(len(found.unsearched), 'part')}; to list them: "
            f"prismdbg inspect {quote(str(named))} --secrets"
        )
    if not redact:
        require_shareable(capsule, found)
        yield capsule
        return
    with masked(capsule, found) as copy:
        require_shareable(capsule, report(copy), is_masked=True)
        if found.hits:
            console.say(
                f"masked: {counted(len(found.hits), 'place')}; a replay that uses a masked value can take another path"
            )
        yield copy
