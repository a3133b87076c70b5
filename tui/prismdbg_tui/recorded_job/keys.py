"""Every action of the screen of a recorded job, once. In `keys.toml` they stand in a table of their own, [job]."""

from __future__ import annotations

from prismdbg_tui.session.actions import Action, Section

TABLE = "job"


def _rank(name: str, keys: str, title: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.RANK, footer=footer)


def _screen(name: str, keys: str, title: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.SCREEN, footer=footer)


JOB_ACTIONS: tuple[Action, ...] = (
    _rank("drop", "enter", "open this rank; at the selected finding if that is about it", "open rank"),
    _rank("debug", "D", "debug this rank: its program runs again", "debug"),
    _rank("next_finding", "n,full_stop", "next finding; the cursor moves to its rank", "next finding"),
    _rank("previous_finding", "N,comma", "previous finding"),
    _rank("whole", "f", "the whole finding, with its traceback", "whole finding"),
    _rank(
        "next_order", "s", "sort by rank, by time waited for others, by time others waited for it, by memory", "sort"
    ),
    _screen("again", "r", "read the run again; done every few seconds while the job runs", "read again"),
    _screen("theme", "T", "next theme"),
    _screen("help", "question_mark,f1", "this help", "help"),
    _screen("leave", "q", "quit", "quit"),
)
