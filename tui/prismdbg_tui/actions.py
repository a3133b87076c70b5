"""Every action of the screen, once: bindings, help, palette and remapping are made from this table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from textual.binding import Binding

from prismdbg.session.line import VERBS


class Section(StrEnum):
    RUN = "Run"
    LOOK = "Look"
    STOPS = "Stops"
    SCREEN = "Screen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """`verb`: the session's word that carries it out, empty where the screen does it alone.

    footer: a short word where the key is always shown. alone: it also works where nothing runs.
    """

    name: str
    keys: str
    title: str
    section: Section
    verb: str = ""
    footer: str = ""


def _run(name: str, keys: str, title: str, verb: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.RUN, verb=verb, footer=footer)


def _look(name: str, keys: str, title: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.LOOK, footer=footer)


def _stops(name: str, keys: str, title: str, verb: str) -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.STOPS, verb=verb)


def _screen(name: str, keys: str, title: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.SCREEN, footer=footer)


ACTIONS: tuple[Action, ...] = (
    _run("next", "n", "go on to the next collective", "next", "next"),
    _run("reverse_next", "N", "back to the collective before", "reverse-next"),
    _run("step", "s", "step one event: op, allocation, free", "step"),
    _run("reverse_step", "S", "back by one event", "reverse-step"),
    _run("finish", "f", "go on to the end of the module or the step", "finish"),
    _run("reverse_finish", "F", "back to the begin of the module or the step", "reverse-finish"),
    _run("continue", "c", "go on to a stop, or to the end of the record", "continue", "continue"),
    _run("reverse_continue", "C", "back to a stop", "reverse-continue"),
    _run("until", "t", "go on to the collective under the cursor", "until", "to cursor"),
    _run("pause", "p", "stop at the next collective; at the start: give up", "pause"),
    _look("up", "u", "look from the caller's frame", "up"),
    _look("down", "d", "look from the called frame", "down"),
    _look("here", "h", "cursor to where the rank stands"),
    _look("earlier", "left,k", "cursor to the collective before"),
    _look("later", "right,j", "cursor to the collective after"),
    _look("first", "g,home", "cursor to the first collective"),
    _look("last", "G,end", "cursor to the last collective"),
    _look("search", "slash", "search: all_reduce  dp  nan  >1MiB  >5ms  12.3  -word", "search"),
    _look("filter", "ampersand", "show only what fits; empty shows all again"),
    _look("previous_hit", "comma", "cursor to the hit before"),
    _look("next_hit", "full_stop", "cursor to the hit after"),
    _look("group_before", "left_square_bracket", "the group before: only its collectives"),
    _look("group_after", "right_square_bracket", "the group after: only its collectives"),
    _look("zoom_in", "plus,equals_sign", "zoom into the time line around the cursor"),
    _look("zoom_out", "minus", "zoom out"),
    _look("zoom_all", "0", "the whole time line"),
    _look("pan_left", "shift+left,less_than_sign", "earlier part of the time line"),
    _look("pan_right", "shift+right,greater_than_sign", "later part of the time line"),
    _look("axis", "o", "time line by time, or each collective as wide as the next"),
    _stops("breakpoint", "b", "breakpoint on this collective", "break"),
    _stops("condition", "B", "condition of the breakpoint", "condition"),
    _stops("watch", "w", "watch an expression", "watch"),
    _stops("checkpoint", "m", "take a process image here", "checkpoint"),
    _screen("command", "colon", "type a command", "command"),
    _screen("pane_after", "tab", "the next pane", "pane"),
    _screen("pane_before", "shift+tab", "the pane before"),
    _screen("maximise", "z", "this pane alone, and back", "zoom"),
    _screen("copy_moment", "y", "copy the moment under the cursor"),
    _screen("theme", "T", "the next theme"),
    _screen("help", "question_mark,f1", "this help", "help"),
    _screen("leave", "q", "end it", "quit"),
)
BY_NAME = {action.name: action for action in ACTIONS}

_MISSING = {
    Section.RUN: "a replay goes forward only; to go back, quit and start it again",
    Section.STOPS: "this session has no stops of one's own yet; {until} goes on to the cursor",
}


def unavailable(action: Action, *, live: bool, keys: dict[str, str]) -> str:
    """Why it cannot be done at all here; empty where it can."""
    if not action.verb:
        return ""
    if not live:
        return "nothing runs here: this is the record. prismdbg debug runs the rank"
    if action.verb in (*VERBS, "pause"):
        return ""
    if action.name in ("step", "finish"):
        return f"the session does not {action.verb} within a collective; {keys['next']} goes on to the next"
    until = keys["until"]
    return _MISSING[action.section].format(until=until)


OPENS_A_LINE = frozenset({"search", "filter", "command"})


def bindings() -> list[Binding]:
    """For the application. What opens a line comes before the focused widget: the next keys, typed or pasted at once,
    already belong to that line."""
    return [
        Binding(
            action.keys,
            f"act('{action.name}')",
            action.footer or action.title,
            show=bool(action.footer),
            id=action.name,
            priority=action.name in OPENS_A_LINE,
            tooltip=action.title,
        )
        for action in ACTIONS
    ]
