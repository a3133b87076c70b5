"""Memory: the curve along the trace, and below it what is alive at the cursor, or what came and went since a mark."""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static, Tree
from textual.widgets.tree import TreeNode

from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.drawing.wrapping import wrapped
from prismdbg_tui.memory.curve_drawing import LABEL, CurveInk, begins_of, draw_curve, point_of
from prismdbg_tui.memory.treemap_drawing import name_in
from prismdbg_tui.memory.view import MemoryNode, MemoryView
from prismdbg_tui.session.messages import MomentChosen
from prismdbg_tui.widgets.treemap import Treemap

_BAR = 8
_MOST_OPEN = 3  # so many of the largest are open at first
_NUMBERS = 24  # cells: gaps, a sign, size and count of blocks, a scrollbar
_LEAST_NAME = 12
_NAME_LINES = 3  # of the whole name of the chosen one
_Path = tuple[str, ...]  # labels from the root on


@dataclass(frozen=True, slots=True)
class Scale:
    """What the longest bar stands for, and what all blocks are together; 0 for a difference."""

    most_bytes: int
    total_bytes: int


class CurvePane(Static):
    """A click goes to the moment under it."""

    def __init__(self) -> None:
        super().__init__("", id="curve")
        self._view = MemoryView()

    def show(self, view: MemoryView) -> None:
        self._view = view
        curve = view.curve
        if curve is None or self.size.width <= LABEL or not curve.high_bytes:
            self.update("")
            return
        ink = CurveInk(
            background=self.background_colors[1].hex6,
            line=color(self.app, "primary"),
            peak=color(self.app, "error"),
            accent=color(self.app, "accent"),
            quiet=color(self.app, "secondary"),
        )
        self.update(draw_curve(curve, self.size.width, self.size.height, ink))

    def on_resize(self) -> None:
        self.show(self._view)

    def on_click(self, event: events.Click) -> None:
        curve = self._view.curve
        if curve is not None and event.x >= LABEL:
            point = point_of(event.x - LABEL, begins_of(curve, max(self.size.width - LABEL, 1)))
            self.post_message(MomentChosen(curve.moments[point]))


class Blocks(Tree[_Path]):
    """Groups of blocks; the arrow keys and the mouse open and close them. What is open stays so at another moment."""

    def __init__(self) -> None:
        super().__init__("", data=(), id="blocks")
        self.show_root = False
        self.guide_depth = 2
        self._scale = Scale(1, 0)
        self._filled: tuple[tuple[MemoryNode, ...], int] = ((), 0)

    def render_label(self, node: TreeNode[_Path], base_style: Style, style: Style) -> Text:
        """In its own colours also under the cursor; what cannot be opened stands where the others do."""
        sign = ("▼ " if node.is_expanded else "▶ ") if node.allow_expand else "  "
        label = Text.assemble((sign, "dim"), node.label if isinstance(node.label, Text) else str(node.label))
        label.stylize(Style(bgcolor=style.bgcolor))
        return label

    def fill(self, nodes: tuple[MemoryNode, ...], total_bytes: int = 0, *, anew: bool = False) -> None:
        """`total_bytes`: what all of it is; 0 for a difference, whose parts are no shares of anything. anew: it is
        about something else than before, and begins at the top. So does a list whose first row was the chosen one:
        nobody chose another."""
        self._filled = (nodes, total_bytes)
        known = {node.data: node.is_expanded for node in self.root.children}
        is_chosen = self.cursor_node is not None and self.cursor_line > 0 and not anew
        chosen = self.cursor_node.data if is_chosen and self.cursor_node else None
        self.clear()
        self._scale = Scale(max((abs(node.size_bytes) for node in nodes), default=0) or 1, total_bytes)
        for number, node in enumerate(nodes):
            self._add(self.root, node, is_open=known.get((node.label,), number < _MOST_OPEN))
        self.root.expand()
        if nodes:
            self.cursor_line = self._line_of(chosen)
        if anew:
            self.scroll_to(y=0, animate=False, force=True)
        else:
            self.scroll_to_line(self.cursor_line, animate=False)

    def on_resize(self) -> None:
        """Names have another width, and the cursor may be out of view."""
        if self._filled[0]:
            self.fill(*self._filled)

    def _line_of(self, path: _Path | None) -> int:
        """0 for what is not there, or not seen."""
        rows = (self.get_node_at_line(line) for line in range(self.last_line + 1))
        return next((line for line, node in enumerate(rows) if node is not None and node.data == path), 0)

    def _add(self, parent: TreeNode[_Path], node: MemoryNode, *, is_open: bool) -> None:
        label = self._label(node, 0 if parent.is_root else self.guide_depth)
        path = (*(parent.data or ()), node.label)
        if not node.children:
            parent.add_leaf(label, path)
            return
        branch = parent.add(label, path, expand=is_open)
        for child in node.children:
            self._add(branch, child, is_open=False)

    def _label(self, node: MemoryNode, indent: int) -> Text:
        """A bar, its share, the name, then the numbers, which end in the same column in all lines."""
        signed, most = not self._scale.total_bytes, self._scale.most_bytes
        ink = "error" if signed and node.size_bytes > 0 else "success" if signed else "primary"
        size = figures.size(abs(node.size_bytes))
        if signed:
            size = f"{'+' if node.size_bytes > 0 else '-'}{size}"
        width = _BAR - indent
        full = round(abs(node.size_bytes) / most * (_BAR - self.guide_depth) * 8)  # a part by the scale of its group
        bar = "█" * (full // 8) + ("▏▎▍▌▋▊▉"[full % 8 - 1] if full % 8 else "")
        share = "" if signed else f"{figures.percent(node.size_bytes / self._scale.total_bytes):>4} "
        name = self._room_for_name(share)
        return Text.assemble(
            (f"{bar:<{width}} ", color(self.app, ink)),
            (share, "bold"),
            (f"{name_in(figures.clean(node.label), name):<{name}} ", "dim" if node.quiet else ""),
            (f"{size:>10} ", "dim" if node.quiet else "bold"),
            (f"{node.blocks:>6}", "dim"),
            no_wrap=True,
        )

    def _room_for_name(self, share: str) -> int:
        return max(self.size.width - _BAR - len(share) - _NUMBERS, _LEAST_NAME)

    def cut_name(self) -> str:
        """All of the name of the chosen line, where less of it is shown."""
        path = self.cursor_node.data if self.cursor_node is not None else None
        name = figures.clean(path[-1]) if path else ""
        return name if len(name) > self._room_for_name("100% " if self._scale.total_bytes else "") else ""


class Memory(Vertical):
    def __init__(self, mark_key: str) -> None:
        """`mark_key`: of the ends of a difference."""
        super().__init__(id="memory", classes="pane")
        self._mark_key = mark_key
        self.border_title = "Memory"
        self.curve, self.note, self.blocks = CurvePane(), Static("", id="memory-note"), Blocks()
        self.whole_name = Static("", id="memory-name")
        self.list = Vertical(self.blocks, self.whole_name, id="memory-list")  # the name takes its lines from the list
        self.map = Treemap()
        self.as_map = False
        self.shown = MemoryView()

    def compose(self) -> ComposeResult:
        yield self.curve
        yield self.note
        yield self.list
        yield self.map

    def on_mount(self) -> None:
        self.map.display = self.whole_name.display = False

    @property
    def inner(self) -> Widget:
        """What takes the keys."""
        return self.map if self.as_map else self.blocks

    def change_shape(self) -> None:
        """A tree, or areas."""
        had_focus = self.inner.has_focus
        self.as_map = not self.as_map
        self._show(self.shown, fill=True)
        if had_focus:
            self.inner.focus()

    def on_tree_node_highlighted(self) -> None:
        self._show_name()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_name)

    def _show_name(self) -> None:
        """Of the chosen line, where its end is cut off: it says whose memory that is."""
        name = self.blocks.cut_name() if self.list.display else ""
        self.whole_name.display = bool(name)
        self.whole_name.update(Text(_in_lines(name, self.size.width - 1), "dim"))

    def on_treemap_chosen(self, message: Treemap.Chosen) -> None:
        self.border_subtitle = self._place(message.label)

    def _place(self, label: str) -> Content:
        """Behind the name of the area that one is in."""
        inside = self.map.inside if self.as_map else ""
        return Content(figures.clean(f"{inside} › {label}" if inside else label))

    def show(self, view: MemoryView) -> None:
        since, total = self.shown.since, self.shown.total_bytes
        anew = (view.by, view.since) != (self.shown.by, since)
        same = view.nodes == self.shown.nodes and (view.since is None, view.total_bytes) == (since is None, total)
        self._show(view, fill=not same, anew=anew)

    def _show(self, view: MemoryView, *, fill: bool, anew: bool = False) -> None:
        self.shown = view
        self.curve.display = view.curve is not None
        self.blocks.display = self.list.display = view.curve is not None and not self.as_map
        self.map.display = view.curve is not None and self.as_map
        self.set_class(view.curve is None, "-empty")
        self.note.update(self._note(view))
        self.curve.show(view)
        if fill:
            if self.as_map:
                self.map.fill(view.nodes, signed=view.since is not None)
            else:
                self.blocks.fill(view.nodes, 0 if view.since is not None else view.total_bytes, anew=anew)
        self._show_name()
        columns = "" if self.as_map else " · size, blocks"
        self.border_subtitle = "" if view.curve is None else self._place(f"by {view.by}{columns}")

    def again(self) -> None:
        """In the theme's colours of now."""
        self._show(self.shown, fill=True)

    def _note(self, view: MemoryView) -> Text:
        if view.curve is None:
            return Text(view.note, "dim", no_wrap=False, overflow="fold")
        text = Text(no_wrap=True, overflow="ellipsis")
        on = f" on {view.device}" if view.device else ""
        where = "at the end" if view.at is None else f"at {view.at}"
        if view.since is not None:
            sign = "+" if view.growth_bytes >= 0 else "-"
            text.append(f"difference between {view.since} and {view.at}{on}: ", "bold")
            growth = f"{'at most ' if view.is_least else ''}{sign}{figures.size(abs(view.growth_bytes))}"
            text.append(growth, f"bold {color(self.app, 'accent')}")
            return text.append(f" · {self._mark_key}: all live memory", "dim")
        least = "at least " if view.is_least else ""
        text.append(f"{least}{figures.size(view.program_bytes)} live{on} {where}", "bold")
        if view.marked is not None:
            text.append(f" · {view.marked} is marked: {self._mark_key} at another collective compares with it", "bold")
        if view.before_bytes or view.is_least:
            text.append(f" · {figures.size(view.before_bytes)} before the start moment", "dim")
        if view.is_least:
            text.append(f", without blocks held only by C++{_bound(view.uncounted_bytes)}", "dim")
        if view.backend_bytes:
            text.append(f" · backend {figures.size(view.backend_bytes)}", "dim")
        if view.reserved_bytes:
            text.append(f" · {figures.size(view.reserved_bytes)} reserved", "dim")
        if view.peak_text:
            text.append(f" · peak caused by {view.peak_text}", "dim")
        return text


def _in_lines(name: str, width: int) -> str:
    """All of it, or both ends of it where `_NAME_LINES` lines have no room for it."""
    rooms = (len(name), *range(_NAME_LINES * width, 0, -max(width // 4, 1)))
    return next((text for room in rooms if len(wrapped(text := name_in(name, room), width)) <= _NAME_LINES), "")


def _bound(uncounted_bytes: int | None) -> str:
    return "" if uncounted_bytes is None else f" (at most {figures.size(uncounted_bytes)})"
