"""The Python stack, innermost frame last as in a traceback. Frames of libraries are one line, unless one is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.text import Text
from textual import events

from prismdbg.model.collective import Frame
from prismdbg.session.frames import is_library
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session.messages import FrameChosen
from prismdbg_tui.widgets.pane import Pane

Fold = tuple[int, ...]  # numbers of frames in one line, outermost first


class Stack(Pane):
    def __init__(self) -> None:
        super().__init__("stack", "Stack")
        self._folds: list[Fold] = []

    def show(self, frames: Sequence[Frame], chosen: int) -> None:
        self._folds = list(folds(frames, chosen))
        if not frames:
            self.put(Text("no Python frame of the program here", "dim"), is_empty=True)
            return
        text = Text(no_wrap=True, overflow="ellipsis")
        for fold in self._folds:
            text.append_text(self._frame(frames[fold[0]], fold[0], chosen) if len(fold) == 1 else _folded(frames, fold))
            text.append("\n")
        text.rstrip()
        self.put(text, f"frame {chosen} of {len(frames)}")
        line = next(line for line, fold in enumerate(self._folds) if chosen in fold)
        self.call_after_refresh(lambda: self.scroll_to(y=max(line - self.size.height + 2, 0), animate=False))

    def _frame(self, frame: Frame, number: int, chosen: int) -> Text:
        accent, here = color(self.app, "accent"), number == chosen
        place = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.line}"
        look = "bold" if here else "dim" if is_library(frame) else ""
        return Text.assemble(
            ("▶" if here else " ", accent),
            (f"{number:>3} ", "dim"),
            (f"{figures.clean(frame.name):<22} ", look),
            (figures.clean(place), look if here or is_library(frame) else accent),
        )

    def on_click(self, event: events.Click) -> None:
        """On a fold: its innermost frame, which opens it."""
        line = self.line_of(event)
        if 0 <= line < len(self._folds):
            self.post_message(FrameChosen(self._folds[line][-1]))


def folds(frames: Sequence[Frame], chosen: int) -> Iterator[Fold]:
    """The lines, outermost first: frames of libraries that follow each other are one, unless `chosen` is among them."""
    numbers = reversed(range(len(frames)))
    for library, run in groupby(numbers, key=lambda number: is_library(frames[number])):
        together = tuple(run)
        if library and len(together) > 1 and chosen not in together:
            yield together
        else:
            yield from ((number,) for number in together)


def _folded(frames: Sequence[Frame], fold: Fold) -> Text:
    """Without files: the line is as long as those of frames, and whoever opens it sees them."""
    return Text(f"   ⋯ {len(fold)} library frames to {figures.clean(frames[fold[-1]].name)}", "dim")
