"""Every action of the screen, once: bindings, help, palette and remapping are made from this table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from textual.binding import Binding, BindingType

from prismdbg_tui.session.visible_panes import NUMBERED, TITLES, key_of

TREEMAP = "treemap"


class Section(StrEnum):
    RUN = "Run"
    LOOK = "Inspect"
    AREAS = "Memory treemap, while its pane has the focus"
    TIMELINE = "Timeline"
    STOPS = "Breakpoints"
    RANK = "Rank"
    TIME = "Map of the time"
    MAP = "View"
    SCREEN = "Screen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """`verb`: the session's word that carries it out, empty where the screen does it alone.

    footer: a short word where the key is always shown. pane: the keys are heard there alone, before the others.
    """

    name: str
    keys: str
    title: str
    section: Section
    verb: str = ""
    footer: str = ""
    pane: str = ""


def action(section: Section, name: str, keys: str, title: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=section, footer=footer)


def _of_verb(section: Section, name: str, keys: str, title: str, verb: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=section, verb=verb, footer=footer)


def _areas(name: str, keys: str, title: str) -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.AREAS, pane=TREEMAP)


_run, _stops = partial(_of_verb, Section.RUN), partial(_of_verb, Section.STOPS)
_look, _line, _screen = (partial(action, each) for each in (Section.LOOK, Section.TIMELINE, Section.SCREEN))

ACTIONS: tuple[Action, ...] = (
    _run("next", "n", "run to the next collective", "next", "next"),
    _run("reverse_next", "N", "back to the previous collective", "reverse-next", "back"),
    _run("step", "s", "run to the next event: an operator, an allocation or a free", "step", "step"),
    _run("reverse_step", "S", "back by one event", "reverse-step"),
    _run("finish", "f", "run until the module call or training step has ended", "finish"),
    _run("reverse_finish", "F", "back to before the module call or training step began", "reverse-finish"),
    _run("continue", "c", "run to a breakpoint, or to the end of the recording", "continue", "continue"),
    _run("reverse_continue", "C", "back to the previous breakpoint hit", "reverse-continue", "reverse"),
    _run("until", "t", "go to the collective under the cursor, forwards or backwards", "goto", "to cursor"),
    _run("back", "left_parenthesis", "previous location", "back"),
    _run("forward", "right_parenthesis", "next location", "forward"),
    _run("origin", "O", "to the origin of the first NaN or infinity", "origin"),
    _run("who_wrote", "W", "back to the last write of a tensor", "who wrote"),
    _run("memory", "M", "trace memory: replay from the start moment to here", "memory"),
    _run("pause", "p", "stop at the next collective; cancel a long command", "pause"),
    _run("restart", "R", "restart from the last checkpoint at or before the cursor; also if the rank died", "restart"),
    _look("up", "u", "up one frame", "up"),
    _look("down", "d", "down one frame", "down"),
    _look("here", "h", "cursor to the rank's position"),
    _look("incident", "I", "cursor to the incident"),
    _look("earlier", "left,k", "cursor to the previous collective"),
    _look("later", "right,j", "cursor to the next collective"),
    _look("first", "g,home", "cursor to the first collective"),
    _look("last", "G,end", "cursor to the last collective"),
    _look("search", "slash", "search: all_reduce  dp  nan  >1MiB  >5ms  12.3  -word", "search"),
    _look("filter", "ampersand", "show only matching collectives; an empty line shows all"),
    _look("previous_hit", "comma", "cursor to the previous match"),
    _look("next_hit", "full_stop", "cursor to the next match"),
    _look("compare", "D", "difference to another run or capsule, or to another rank"),
    _look("note", "a", "write a note on this moment, kept beside the capsule"),
    _look("bookmark", "K", "toggle a bookmark on this moment"),
    _look("next_note", "apostrophe", "cursor to the next note or bookmark"),
    _look("memory_by", "i", "live memory by stack, module, size, age, operator"),
    _look("memory_mark", "x", "memory: mark one end of a difference here, then the other; then all live memory again"),
    _look("memory_step", "X", "memory: difference between here and the same place one step before"),
    _look("memory_shape", "e", "memory: a tree or a treemap"),
    _areas("area_left", "left", "area to the left"),
    _areas("area_right", "right", "area to the right"),
    _areas("area_up", "up", "area above"),
    _areas("area_down", "down", "area below"),
    _areas("area_open", "enter", "open this area (also with a double click)"),
    _areas("area_close", "backspace", "close this area"),
    _line("lane_before", "left_square_bracket", "previous group or rank: show only its collectives"),
    _line("lane_after", "right_square_bracket", "next group or rank: show only its collectives"),
    _line("lanes", "l", "one row per group, or one row per rank"),
    _line("zoom_in", "plus,equals_sign", "zoom into the timeline around the cursor"),
    _line("zoom_out", "minus", "zoom out"),
    _line("zoom_all", "0", "the whole timeline"),
    _line("pan_left", "shift+left,less_than_sign", "earlier part of the timeline"),
    _line("pan_right", "shift+right,greater_than_sign", "later part of the timeline"),
    _line("sensor", "r", "telemetry below the lanes: next sensor, or none"),
    _line("axis", "o", "scale by time, or equal width for each collective"),
    _stops("breakpoint", "b", "toggle a breakpoint here", "break", "break"),
    _stops("condition", "B", "edit its condition; without a breakpoint here, set one on all such collectives", "break"),
    _stops("temporary", "H", "set a temporary breakpoint here: it is deleted at its first hit", "tbreak"),
    _stops("ignore", "P", "ignore the next hits of the breakpoint here", "ignore"),
    _stops("logpoint", "L", "make the breakpoint here a logpoint, or a breakpoint again", "logpoint"),
    _stops("watch", "w", "watch an expression: show it at each stop", "watch", "watch"),
    _stops("checkpoint", "m", "save a checkpoint of the rank", "checkpoint"),
    _screen("command", "colon", "type a command", "command"),
    _screen("pane_after", "tab", "next pane", "pane"),
    _screen("pane_before", "shift+tab", "previous pane"),
    *(_screen(f"pane_{key_of(pane)}", key_of(pane), f"pane: {TITLES[pane]}") for pane in NUMBERED),
    _screen("swap", "v", "switch tab: collectives or memory, peers or breakpoints"),
    _screen("maximise", "z", "maximize this pane, or restore it", "zoom"),
    _screen(
        "copy_moment",
        "y",
        "copy the moment under the cursor or, in the pane of values, the one printed last, else the first",
    ),
    _screen("copy_link", "Y", "copy the link of the moment under the cursor, in a browser"),
    _screen("theme", "T", "next theme"),
    _screen("help", "question_mark,f1", "this help", "help"),
    _screen("leave", "q", "quit", "quit"),
)
BY_NAME = {action.name: action for action in ACTIONS}


def unavailable(action: Action, *, live: bool) -> str:
    """Why it cannot be done at all here; empty where it can."""
    if action.verb and not live:
        return "read-only view of the recording; `prismdbg debug` runs it"
    return ""


OPENS_A_LINE = frozenset(
    {"search", "filter", "command", "condition", "watch", "who_wrote", "ignore", "compare", "note"}
)


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
        if not action.pane
    ]


def bindings_of(pane: str) -> list[BindingType]:
    """For the widget of that name."""
    return [
        Binding(action.keys, f"app.act('{action.name}')", action.title, show=False, id=action.name)
        for action in ACTIONS
        if action.pane == pane
    ]
