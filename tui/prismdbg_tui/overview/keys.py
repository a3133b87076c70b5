"""Every action of the overview and of a rank's simulated timeline, once: bindings, help and remapping are made of it.

In `keys.toml` they stand in a table of their own, [overview].
"""

from __future__ import annotations

from functools import partial

from textual.binding import Binding, BindingType

from prismdbg_tui.session.actions import Action, Section, action

TABLE = "overview"


_map, _rank, _screen = (partial(action, each) for each in (Section.MAP, Section.RANK, Section.SCREEN))

OVERVIEW_ACTIONS: tuple[Action, ...] = (
    _rank("drop", "enter", "open this rank: its recording if it ran, else its simulated timeline", "open rank"),
    _rank("simulated", "t", "open its simulated timeline, even if it ran", "timeline"),
    _rank("debug", "D", "debug this rank, if it ran", "debug"),
    _map("next_metric", "m", "next value: waiting, late, done, computed, exposed, memory, by channel", "value"),
    _map("previous_metric", "M", "previous value"),
    _map("first_metric", "1", "waiting"),
    _map("second_metric", "2", "late"),
    _map("third_metric", "3", "done"),
    _map("fourth_metric", "4", "computed"),
    _map("fifth_metric", "5", "exposed"),
    _map("sixth_metric", "6", "memory, if the graph has it"),
    _map("rows", "r", "other axes for the rows", "rows"),
    _map("columns", "c", "other axes for the columns; the remaining axes are inside a cell", "columns"),
    _map("swap", "s", "swap rows and columns"),
    _map("fold", "f", "show the maximum, mean or minimum of the ranks in a cell", "fold"),
    _map("scale", "e", "colours: linear, or by quantile (each colour has the same number of ranks)", "even"),
    _map("zoom_in", "plus,equals_sign", "zoom in around the cursor", "zoom"),
    _map("zoom_out", "minus", "zoom out"),
    _map("zoom_all", "0", "all ranks"),
    _rank("left", "left,h", "cell to the left"),
    _rank("right", "right,l", "cell to the right"),
    _rank("up", "up,k", "cell above"),
    _rank("down", "down,j", "cell below"),
    _rank("before_inside", "left_square_bracket", "previous rank in this cell"),
    _rank("after_inside", "right_square_bracket", "next rank in this cell"),
    _rank("smaller", "full_stop,n", "rank with the next smaller value", "next"),
    _rank("larger", "comma,N", "rank with the next larger value"),
    _rank("largest", "g,home", "rank with the largest value"),
    _rank("go_to", "slash", "go to a rank: 617, or pp=1 dp=13", "go to"),
    _screen("iteration", "tab", "the iteration: waits, critical path, fidelity", "iteration"),
    _screen("theme", "T", "next theme"),
    _screen("help", "question_mark,f1", "this help", "help"),
    _screen("leave", "q", "quit", "quit"),
)

LINE_ACTIONS: tuple[Action, ...] = (
    _rank("earlier", "left,k,up", "previous entry", "previous"),
    _rank("later", "right,j,down", "next entry", "next"),
    _rank("page_earlier", "pageup", "previous page"),
    _rank("page_later", "pagedown", "next page"),
    _rank("first", "g,home", "first entry"),
    _rank("last", "G,end", "last entry"),
    _rank("longer_wait", "comma", "previous wait of at least one cell width", "previous wait"),
    _rank("next_wait", "full_stop", "next wait of at least one cell width", "next wait"),
    _map("zoom_in", "plus,equals_sign", "zoom in around the cursor", "zoom"),
    _map("zoom_out", "minus", "zoom out"),
    _map("zoom_all", "0", "show all"),
    _map("pan_left", "shift+left,less_than_sign", "earlier part"),
    _map("pan_right", "shift+right,greater_than_sign", "later part"),
    _screen("help", "question_mark,f1", "this help", "help"),
    _screen("back", "escape,q", "back to all ranks", "back"),
)


OPENS_A_LINE = "go_to"  # before the focused widget: keys that are typed at once after it belong to that line


def bindings(actions: tuple[Action, ...]) -> list[BindingType]:
    return [
        Binding(
            action.keys,
            f"act('{action.name}')",
            action.title,
            show=bool(action.footer),
            id=action.name,
            priority=action.name == OPENS_A_LINE,
        )
        for action in actions
    ]
