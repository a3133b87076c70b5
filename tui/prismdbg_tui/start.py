"""Starts the application where there is a terminal; says the same as a plain table where there is none."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from prismdbg.capsule.capsule_dir import Capsule

if TYPE_CHECKING:
    from prismdbg.workflows.replay import ReplayRequest

END_BOUND_S = 30.0


def on_terminal() -> bool:
    """All three streams (the screen is drawn on the third), and one that can place its cursor."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)) and os.environ.get(
        "TERM", "dumb"
    ) not in ("dumb", "")


def look(capsule: Capsule, name: str) -> int:
    """The exit code."""
    if not on_terminal():
        from prismdbg_tui.plain_table import write_table

        write_table(capsule, sys.stdout)
        return 0
    from prismdbg_tui.app import PrismApp
    from prismdbg_tui.keymap import config_file, read_keys

    return PrismApp(capsule, name, keys=read_keys(config_file())).run() or 0


def debug(request: ReplayRequest, name: str, talk: TextIO) -> int:
    """Runs the rank under the screen; when this returns nothing of the replay is left."""
    from prismdbg.workflows.replay import open_replay
    from prismdbg_tui.app import PrismApp
    from prismdbg_tui.keymap import config_file, read_keys
    from prismdbg_tui.live import LiveRank

    live = LiveRank(lambda say: open_replay(request, say))
    app = PrismApp(request.capsule, name, live=live, keys=read_keys(config_file()))
    try:
        code = app.run() or 0
    finally:
        live.close()
        if not live.wait(1.0):
            print("prismdbg: ending the replay ...", file=talk, flush=True)
            live.wait(END_BOUND_S)
    return code or app.state.exit_code
