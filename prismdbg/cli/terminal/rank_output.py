"""What a replayed rank printed: its end is shown, and all of it is kept."""

from __future__ import annotations

import os
from pathlib import Path

from prismdbg.render import console

OUTPUT_SHOWN_BYTES = 4000


def say_output(output: str) -> None:
    if output:
        console.say("the rank's own output:")
        for line in output[-OUTPUT_SHOWN_BYTES:].splitlines():
            console.say(f"  | {line}")


def keep_output(capsule: Path, output: str) -> Path | None:
    """Beside the capsule, for the session's folder goes; None where nothing was written or that place is read-only.

    Never through a link, and never into a file that is there already: whoever may write beside the capsule could have
    put it there."""
    kept = capsule.parent / f"{capsule.name}.output"
    if not output:
        return None
    try:
        kept.unlink(missing_ok=True)
        descriptor = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(output)
        except OSError:
            kept.unlink(missing_ok=True)  # it would be half of it
            raise
    except OSError as error:
        console.announce(f"cannot save the rank's output to {kept}: {error.strerror}")
        return None
    return kept
