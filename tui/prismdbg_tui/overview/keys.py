"""Every action of the overview and of a rank's simulated timeline, once: bindings, help and remapping are made of it.

In `keys.toml` they stand in a table of their own, [overview].
"""

from __future__ import annotations

from textual.binding import Binding, BindingType

from prismdbg_tui.session.actions import Action, Section

TABLE = "overview"


def _map(name: str, keys: str, title: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.MAP, footer=footer)


def _rank(name: str, keys: str, title: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.RANK, footer=footer)


def _screen(name: str, keys: str, title: str, footer: str = "") -> Action:
    return Action(name=name, keys=keys, title=title, section=Section.SCREEN, footer=footer)


OVERVIEW_ACTIONS: tuple[Action, ...] = (
    _rank("drop", "enter", "into this rank: its record where it ran, else its simulated timeline", "into the rank"),
    _rank("simulated", "t", "its simulated timeline, whether it ran or not", "timeline"),
    _rank("debug", "D", "debug it, where it ran: it runs again", "debug"),
    _map("next_metric", "m", "the next number: waiting, late, done, computed, exposed, memory, by channel", "number"),
    _map("previous_metric", "M", "the number before"),
    _map("first_metric", "1", "waiting"),
    _map("second_metric", "2", "late"),
    _map("third_metric", "3", "done"),
    _map("fourth_metric", "4", "computed"),
    _map("fifth_metric", "5", "exposed"),
    _map("sixth_metric", "6", "memory, where the graph has it"),
    _map("rows", "r", "other axes make the rows", "rows"),
    _map("columns", "c", "other axes make the columns; what is left lies inside a cell", "columns"),
    _map("swap", "s", "rows for columns"),
    _map("fold", "f", "a cell of many ranks shows the most, the mean, the least of them", "fold"),
    _map("scale", "e", "colours by amount, or by order: then each has as many ranks as the next", "even"),
    _map("zoom_in", "plus,equals_sign", "zoom in around the cursor", "zoom"),
    _map("zoom_out", "minus", "zoom out"),
    _map("zoom_all", "0", "all ranks"),
    _rank("left", "left,h", "the cell to the left"),
    _rank("right", "right,l", "the cell to the right"),
    _rank("up", "up,k", "the cell above"),
    _rank("down", "down,j", "the cell below"),
    _rank("before_inside", "left_square_bracket", "the rank before in this cell"),
    _rank("after_inside", "right_square_bracket", "the rank after in this cell"),
    _rank("smaller", "full_stop,n", "the rank with the next smaller number", "next"),
    _rank("larger", "comma,N", "the rank with the next larger number"),
    _rank("largest", "g,home", "the rank with the largest number of all"),
    _rank("go_to", "slash", "to a rank: 617, or pp=1 dp=13", "go to"),
    _screen("iteration", "tab", "the iteration: waits, critical path, how far it is to be believed", "iteration"),
    _screen("theme", "T", "the next theme"),
    _screen("help", "question_mark,f1", "this help", "help"),
    _screen("leave", "q", "end it", "quit"),
)

LINE_ACTIONS: tuple[Action, ...] = (
    _rank("earlier", "left,k,up", "what comes before", "before"),
    _rank("later", "right,j,down", "what comes after", "after"),
    _rank("page_earlier", "pageup", "a page of it before"),
    _rank("page_later", "pagedown", "a page of it after"),
    _rank("first", "g,home", "the first"),
    _rank("last", "G,end", "the last"),
    _rank("longer_wait", "comma", "the wait before that is as long as a cell is wide", "wait before"),
    _rank("next_wait", "full_stop", "the next such wait", "wait after"),
    _map("zoom_in", "plus,equals_sign", "zoom in around the cursor", "zoom"),
    _map("zoom_out", "minus", "zoom out"),
    _map("zoom_all", "0", "all of it"),
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
