"""Values at the cursor: of the living rank where it stands there, else what the record holds."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from prismdbg.errors import UsageError
from prismdbg.render.value_text import value_text
from prismdbg.session.watches import Watched
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.value_drawing import draw, draw_line
from prismdbg_tui.drawing.watch_drawing import draw_watches, draw_wrong
from prismdbg_tui.session.views import Json, ValueView
from prismdbg_tui.widgets.pane import Pane


class Values(Pane):
    def __init__(self) -> None:
        super().__init__("values", "Values")
        self._last: tuple[Sequence[ValueView], Sequence[Json], str, Sequence[Watched]] = ((), (), "", ())
        self._drawn: list[Text] = []

    def show(
        self, values: Sequence[ValueView], names: Sequence[Json], note: str, watches: Sequence[Watched] = ()
    ) -> None:
        """What is watched comes first, then what is wrong with what the collective gives and takes, what was printed
        (in a line each where that was at an earlier stop), the `names` of the frame, and the collective's tensors."""
        self._last = (values, names, note, watches)
        parts = self._parts()
        if parts != self._drawn:  # of another place: how far somebody scrolled says nothing about it
            self.scroll_to(y=0, animate=False, force=True, immediate=True)
        self._draw(parts)

    def _draw(self, parts: list[Text]) -> None:
        self._drawn = parts
        content = Group(*_spaced(parts)) if parts else Text("nothing here", "dim")
        self.put(content, self._last[2], is_empty=not parts)

    def _parts(self) -> list[Text]:
        values, names, _, watches = self._last
        asked = [view for view in values if not view.of_call]
        of_call = [view for view in values if view.of_call]
        lines = [draw_watches(watches, self.ink)] if watches else []
        lines += [line for view in of_call if (line := draw_wrong(view, self.ink)) is not None]
        lines += [draw_line(view.title, view.value, self.ink) for view in asked if view.again]
        parts = [draw(view.title, view.value, self.ink, view.differs) for view in asked if not view.again]
        named = [self._names(names)] if names else []
        if not parts:  # no blank line then: the names are to be in sight
            lines, named = [*lines, *named], []
        first = Text("\n", no_wrap=True, overflow="ellipsis").join(lines)
        parts = [*([first] if lines else []), *parts, *named]
        parts += [draw(view.title, view.value, self.ink, view.differs) for view in of_call]
        return parts

    def first(self) -> tuple[str, str]:
        """The name of the first value and its text: what was printed last, else what the collective gives."""
        values, _, _, watches = self._last
        asked = [view for view in values if not view.of_call]
        for view in (*asked, *values):
            return view.title, _plain(view.value)
        for watch in watches:
            if watch.value is not None:
                return watch.text, _plain(watch.value)
        raise UsageError("no value here: print one in the console")

    def _names(self, names: Sequence[Json]) -> Text:
        width = min(max(len(str(name["name"])) for name in names), 20)
        text = Text("names of this frame\n", "bold", no_wrap=True, overflow="ellipsis")
        for name in names:
            text.append(f"  {figures.clean(str(name['name'])):<{width}}  ", self.ink.name)
            text.append(f"{figures.clean(str(name['text']))}\n", "not bold")
        text.rstrip()
        return text

    def on_resize(self) -> None:
        self._draw(self._parts())


def _spaced(parts: Sequence[Text]) -> list[Text]:
    return [piece for part in parts for piece in (part, Text())][:-1]


def _plain(value: Json) -> str:
    return figures.clean(str(value["text"]) if value.get("kind") == "note" else value_text(value))
