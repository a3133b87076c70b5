"""Every action of the screen, once: bindings, help, palette and remapping are made from this table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from textual.binding import Binding, BindingType

TREEMAP = "treemap"


class Section(StrEnum):
    RUN = "Run"
    LOOK = "Look"
    AREAS = "Memory as areas, its pane chosen"
    TIMELINE = "Timeline"
    STOPS = "Stops"
    RANK = "Rank"
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


def _run(name: str, keys: str, title: str, verb: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.RUN, verb=verb, footer=footer)


def _look(name: str, keys: str, title: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.LOOK, footer=footer)


def _areas(name: str, keys: str, title: str) -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.AREAS, pane=TREEMAP)


def _line(name: str, keys: str, title: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.TIMELINE, footer=footer)


def _stops(name: str, keys: str, title: str, verb: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.STOPS, verb=verb, footer=footer)


def _screen(name: str, keys: str, title: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.SCREEN, footer=footer)


ACTIONS: tuple[Action, ...] = (
    _run("next", "n", "on to the next collective", "next", "next"),
    _run("reverse_next", "N", "back to the collective before", "reverse-next", "back"),
    _run("step", "s", "on by one event: an operator, an allocation, a free", "step", "step"),
    _run("reverse_step", "S", "back by one event", "reverse-step"),
    _run("finish", "f", "on to the end of the module or the step", "finish"),
    _run("reverse_finish", "F", "back to the begin of the module or the step", "reverse-finish"),
    _run("continue", "c", "on to a stop, or to the end of the record", "continue", "continue"),
    _run("reverse_continue", "C", "back to the stop that was hit last", "reverse-continue", "reverse"),
    _run("until", "t", "to the collective under the cursor, forwards or backwards", "goto", "to cursor"),
    _run("back", "left_parenthesis", "to the place where one was before", "back"),
    _run("forward", "right_parenthesis", "and forwards again", "forward"),
    _run("origin", "O", "back to where the first NaN or infinity came from", "origin"),
    _run("memory", "M", "trace memory: once more from the capsule's beginning to here", "memory"),
    _run("pause", "p", "stop at the next collective; what takes long is given up", "pause"),
    _run("restart", "R", "to the last image at or before the cursor; also when the rank is gone", "restart"),
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
    _look("memory_by", "i", "live memory by stack, module, size, age, operator"),
    _look("memory_mark", "x", "memory: what came and went between here and the cursor; once more: all of it"),
    _look("memory_step", "X", "memory: what came and went since the same place one step before"),
    _look("memory_shape", "e", "memory: a tree, or areas (a treemap)"),
    _areas("area_left", "left", "the area on the left"),
    _areas("area_right", "right", "the area on the right"),
    _areas("area_up", "up", "the area above"),
    _areas("area_down", "down", "the area below"),
    _areas("area_open", "enter", "into this area: what it is made of fills the pane; a double click, too"),
    _areas("area_close", "backspace", "out of it again"),
    _line("lane_before", "left_square_bracket", "the group or rank before: only its collectives"),
    _line("lane_after", "right_square_bracket", "the group or rank after: only its collectives"),
    _line("lanes", "l", "a lane a group, or a lane a rank"),
    _line("zoom_in", "plus,equals_sign", "zoom into the timeline around the cursor"),
    _line("zoom_out", "minus", "zoom out"),
    _line("zoom_all", "0", "the whole timeline"),
    _line("pan_left", "shift+left,less_than_sign", "earlier part of the timeline"),
    _line("pan_right", "shift+right,greater_than_sign", "later part of the timeline"),
    _line("axis", "o", "by time, or each collective as wide as the next"),
    _stops("breakpoint", "b", "breakpoint on this collective, or away with it", "break", "break"),
    _stops("condition", "B", "its condition; where there is none: a breakpoint on all such collectives", "break"),
    _stops("watch", "w", "watch an expression: shown at each stop", "watch", "watch"),
    _stops("checkpoint", "m", "keep an image of the rank as it stands", "checkpoint"),
    _screen("command", "colon", "type a command", "command"),
    _screen("pane_after", "tab", "the next pane", "pane"),
    _screen("pane_before", "shift+tab", "the pane before"),
    _screen("swap", "v", "the pane behind: memory for collectives, stops for peers"),
    _screen("maximise", "z", "this pane alone, and back", "zoom"),
    _screen("copy_moment", "y", "copy the moment under the cursor"),
    _screen("theme", "T", "the next theme"),
    _screen("help", "question_mark,f1", "this help", "help"),
    _screen("leave", "q", "end it", "quit"),
)
BY_NAME = {action.name: action for action in ACTIONS}


def unavailable(action: Action, *, live: bool) -> str:
    """Why it cannot be done at all here; empty where it can."""
    if action.verb and not live:
        return "nothing runs here: this is the record. prismdbg debug runs the rank"
    return ""


OPENS_A_LINE = frozenset({"search", "filter", "command", "condition", "watch"})


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
