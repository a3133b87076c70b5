"""The Python stack, innermost frame last as in a traceback; frames of libraries are quiet."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import events

from prismdbg.model.collective import Frame
from prismdbg.session.frames import is_library
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session.messages import FrameChosen
from prismdbg_tui.widgets.pane import Pane


class Stack(Pane):
    def __init__(self) -> None:
        super().__init__("stack", "Stack")
        self._frames: tuple[Frame, ...] = ()

    def show(self, frames: Sequence[Frame], chosen: int) -> None:
        self._frames = tuple(frames)
        if not frames:
            self.put(Text("no Python frame of the program here", "dim"))
            return
        text = Text(no_wrap=True, overflow="ellipsis")
        accent = color(self.app, "accent")
        for number in reversed(range(len(frames))):
            frame, here = frames[number], number == chosen
            place = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.line}"
            look = "bold" if here else "dim" if is_library(frame) else ""
            text.append("▶" if here else " ", accent)
            text.append(f"{number:>3} ", "dim")
            text.append(f"{figures.clean(frame.name):<22} ", look)
            text.append(f"{figures.clean(place)}\n", look if here or is_library(frame) else accent)
        text.rstrip()
        self.put(text, f"frame {chosen} of {len(frames)}")
        line = len(frames) - 1 - chosen
        self.call_after_refresh(lambda: self.scroll_to(y=max(line - self.size.height + 2, 0), animate=False))

    def on_click(self, event: events.Click) -> None:
        line = int(event.get_content_offset_capture(self).y + self.scroll_offset.y)
        if 0 <= line < len(self._frames):
            self.post_message(FrameChosen(len(self._frames) - 1 - line))
