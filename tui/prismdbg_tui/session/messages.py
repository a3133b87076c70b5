"""Everything that workers and widgets tell the application. Nobody but the application touches a widget."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from textual.message import Message

from prismdbg.errors import PrismError
from prismdbg.jobs.leading_finding import LeadingFinding
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg_tui.memory.reader import MemoryRequest
from prismdbg_tui.memory.view import MemoryView
from prismdbg_tui.session.views import SourceView, State, ValueView
from prismdbg_tui.timeline.recording import Recording


class Purpose(StrEnum):
    """What the prompt asks for."""

    SEARCH = "search"
    FILTER = "show only"
    CONDITION = "condition"
    WATCH = "watch"
    WHO = "who wrote"
    IGNORE = "ignore hits"
    COMPARE = "compare with"
    NOTE = "note"


class RecordingRead(Message):
    """The capsule's log is there to be shown."""

    def __init__(self, recording: Recording, took_s: float) -> None:
        self.recording = recording
        self.took_s = took_s
        super().__init__()


class Failed(Message):
    """Something asked for could not be done; `fatal`: the error after which there is nothing to go on with."""

    def __init__(self, text: str, hint: str = "", *, fatal: PrismError | None = None) -> None:
        self.text = text
        self.hint = hint
        self.fatal = fatal
        super().__init__()


class FindingRead(Message):
    """What `why` says of the capsule; None where it finds nothing."""

    def __init__(self, finding: LeadingFinding | None) -> None:
        self.finding = finding
        super().__init__()


class Compared(Message):
    """This recording beside another one. `equal`: None where nothing could be compared, or not all of long logs.
    `moment`: of the first difference on this side; None where there is none."""

    def __init__(self, title: str, lines: tuple[str, ...], *, equal: bool | None, moment: Moment | None) -> None:
        self.title = title
        self.lines = lines
        self.equal = equal
        self.moment = moment
        super().__init__()


class CursorMoved(Message):
    """Somebody looks at another row. `number`: of the moves of the pane that tells it, which has made it already."""

    def __init__(self, row: int, number: int = 0) -> None:
        self.row, self.number = row, number
        super().__init__()


class FrameChosen(Message):
    def __init__(self, frame: int) -> None:
        self.frame = frame
        super().__init__()


class PaneChosen(Message):
    def __init__(self, pane: str) -> None:
        self.pane = pane
        super().__init__()


class LineTyped(Message):
    """A line in the console."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__()


class Asked(Message):
    """A line in the prompt. Empty takes away what it was for."""

    def __init__(self, purpose: Purpose, text: str) -> None:
        self.purpose = purpose
        self.text = text
        super().__init__()


class PromptLeft(Message):
    """Nothing was asked for after all."""


class RowsFound(Message):
    """The answer to a pattern. `keeps`: only these rows are shown from now on."""

    def __init__(self, pattern: str, rows: Any, *, keeps: bool) -> None:
        self.pattern = pattern
        self.rows = rows
        self.keeps = keeps
        super().__init__()


class SearchEnded(Message):
    """Comes after the answer, whatever that was."""


class RecordedRead(Message):
    """What the record holds of one row: its values; and the source of the frame that is looked from."""

    def __init__(
        self, row: int, frame: int, frames: tuple[Frame, ...], source: SourceView, values: tuple[ValueView, ...]
    ) -> None:
        self.row = row
        self.frame = frame
        self.frames = frames
        self.source = source
        self.values = values
        super().__init__()


class StateChanged(Message):
    """The rank went on, stopped, ended or was lost; or was asked and answered."""

    def __init__(self, state: State) -> None:
        self.state = state
        super().__init__()


class Said(Message):
    """A line for the console; `kind`: said, asked, error, event, table."""

    def __init__(self, text: str, kind: str = "said") -> None:
        self.text = text
        self.kind = kind
        super().__init__()


class OutputGrew(Message):
    """What the rank printed, from a byte of its output on."""

    def __init__(self, data: bytes, start_bytes: int) -> None:
        self.data = data
        self.start_bytes = start_bytes
        super().__init__()


class LiveEnded(Message):
    """The replay is over and cleaned up."""


class MomentChosen(Message):
    """The cursor is to go there."""

    def __init__(self, moment: Moment) -> None:
        self.moment = moment
        super().__init__()


class MemoryRead(Message):
    """What the trace says of one moment; `request`: the one that it answers."""

    def __init__(self, view: MemoryView, request: MemoryRequest | None = None) -> None:
        self.view, self.request = view, request
        super().__init__()


class OutputCut(Message):
    """The rank went back in time: only the first bytes of its output were ever printed."""

    def __init__(self, length_bytes: int) -> None:
        self.length_bytes = length_bytes
        super().__init__()
