"""Every action of the screen of a recorded job, once. In `keys.toml` they stand in a table of their own, [job]."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from prismdbg_tui.session.actions import Action, Section, action

TABLE = "job"

_rank, _map, _screen = (partial(action, each) for each in (Section.RANK, Section.TIME, Section.SCREEN))

JOB_ACTIONS: tuple[Action, ...] = (
    _rank("drop", "enter", "open this rank; at the selected finding if that is about it", "open rank"),
    _rank("debug", "D", "debug this rank: its program runs again", "debug"),
    _rank("time", "t", "the time of all ranks as a map; again: the table", "map"),
    _rank("next_finding", "n,full_stop", "next finding; the cursor moves to its rank", "next finding"),
    _rank("previous_finding", "N,comma", "previous finding"),
    _rank("whole", "f", "the whole finding, with its traceback", "whole finding"),
    _rank(
        "next_order", "s", "sort by rank, by time waited for others, by time others waited for it, by memory", "sort"
    ),
    _map("earlier", "left,h", "an earlier cell"),
    _map("later", "right,l", "a later cell"),
    _map("up", "up,k", "the row above"),
    _map("down", "down,j", "the row below"),
    _map("before_inside", "left_square_bracket", "previous rank, also within a row"),
    _map("after_inside", "right_square_bracket", "next rank, also within a row"),
    _map("longest", "g,home", "the longest wait of all ranks"),
    _screen("again", "r", "read the run again; done every few seconds while the job runs", "read again"),
    _screen("theme", "T", "next theme"),
    _screen("help", "question_mark,f1", "this help", "help"),
    _screen("leave", "q", "quit", "quit"),
)
TABLE_ACTIONS = tuple(replace(each, footer="") if each.name in ("drop", "debug") else each for each in JOB_ACTIONS)
"""Of another tool's files, from which no rank can be opened: the line of keys does not offer it."""
OF_MAP = frozenset(each.name for each in JOB_ACTIONS if each.section is Section.TIME)  # heard only where it is shown
