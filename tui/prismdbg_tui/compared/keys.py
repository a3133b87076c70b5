"""Every action of the screen of a sweep, once. In `keys.toml` they stand in a table of their own, [sweep]."""

from __future__ import annotations

from functools import partial

from prismdbg_tui.session.actions import Action, Section, action

TABLE = "sweep"
_map, _screen = (partial(action, each) for each in (Section.MAP, Section.SCREEN))

SWEEP_ACTIONS: tuple[Action, ...] = (
    _map("open", "enter", "open the run of this configuration: all its ranks", "open run"),
    _map("next_order", "s", "sort by time, by memory, by name", "sort"),
    _screen("again", "r", "read the folder again, while the sweep runs", "read again"),
    _screen("theme", "T", "next theme"),
    _screen("help", "question_mark,f1", "this help", "help"),
    _screen("leave", "q", "quit", "quit"),
)
