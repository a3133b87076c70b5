"""Values at the cursor: of the living rank where it stands there, else what the record holds."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.value_drawing import draw
from prismdbg_tui.session.views import Json, ValueView
from prismdbg_tui.widgets.pane import Pane


class Values(Pane):
    def __init__(self) -> None:
        super().__init__("values", "Values")
        self._last: tuple[Sequence[ValueView], Sequence[Json], str] = ((), (), "")

    def show(self, values: Sequence[ValueView], names: Sequence[Json], note: str) -> None:
        """`names` of the frame, a line each, below the values."""
        self._last = (values, names, note)
        parts = [draw(view.title, view.value, self.ink, view.differs) for view in values]
        if names:
            parts.append(self._names(names))
        self.put(Group(*_spaced(parts)) if parts else Text("nothing here", "dim"), note)

    def _names(self, names: Sequence[Json]) -> Text:
        width = min(max(len(str(name["name"])) for name in names), 20)
        text = Text("names of this frame\n", "bold", no_wrap=True, overflow="ellipsis")
        for name in names:
            text.append(f"  {figures.clean(str(name['name'])):<{width}}  ", self.ink.name)
            text.append(f"{figures.clean(str(name['text']))}\n", "not bold")
        text.rstrip()
        return text

    def on_resize(self) -> None:
        self.show(*self._last)


def _spaced(parts: Sequence[Text]) -> list[Text]:
    return [piece for part in parts for piece in (part, Text())][:-1]
