"""What a rank says to its user. Standard library only: it is needed before torch is there."""

from __future__ import annotations

import sys

from prismdbg.rank.program.interruptions import is_for_the_program


def say(text: str) -> None:
    """One line on stderr, after our name. Raises nothing: the disk may be full that stderr is written to, its reader
    gone, or the stream one of the program's own. Where there is none, `print` would write to stdout."""
    if sys.stderr is None:
        return
    try:
        print(f"prismdbg: {text}", file=sys.stderr)
    except Exception as error:
        if is_for_the_program(error):
            raise
