"""Reads, away from the screen's thread, what the capsule says: its log at first, then a row's values and source."""

from __future__ import annotations

import time
from pathlib import Path

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.errors import PrismError, UsageError
from prismdbg.jobs.leading_finding import leading_finding
from prismdbg.log.timeline_file import export_timeline
from prismdbg.model.collective import Frame
from prismdbg.session.frames import own_frame
from prismdbg_tui.memory.reader import MemoryReader, MemoryRequest
from prismdbg_tui.session.messages import Failed, FindingRead, MemoryRead, RecordedRead, RecordingRead, RowsFound, Said
from prismdbg_tui.session.pattern import rows_of
from prismdbg_tui.session.recorded_call import Sources, received
from prismdbg_tui.session.views import SourceView
from prismdbg_tui.timeline.recording import Recording, read_recording

Told = RecordingRead | Failed | RecordedRead | RowsFound


class CapsuleReader:
    """Each method is one worker's work and gives the message to post."""

    def __init__(self, capsule: Capsule) -> None:
        self._capsule = capsule
        self._sources = Sources(capsule)
        self._memory = MemoryReader()
        self._run_looked_for = False
        self._trace: Path | None = None

    def read(self) -> Told:
        begun = time.monotonic()
        try:
            recording = read_recording(self._capsule)
        except PrismError as error:
            return Failed(str(error), error.hint, fatal=error)
        return RecordingRead(recording, time.monotonic() - begun)

    def finding(self) -> FindingRead | Failed:
        try:
            return FindingRead(leading_finding(self._capsule))
        except PrismError as error:
            return Failed(f"no diagnosis: {error}", error.hint)

    def find(self, recording: Recording, pattern: str, *, keeps: bool) -> Told:
        try:
            return RowsFound(pattern, rows_of(recording, pattern), keeps=keeps)
        except UsageError as error:
            return Failed(str(error), error.hint)

    def export_timeline(self, path: Path) -> Said | Failed:
        try:
            return Said(export_timeline(self._capsule, path), "said")
        except PrismError as error:
            return Failed(str(error), error.hint)

    def look(self, recording: Recording, row: int, chosen: int | None, outside: tuple[Frame, ...] = ()) -> Told:
        """Of a recorded call, or of the stack `outside` of it: the source of the `chosen` frame, else of the program's
        own. The values are those of the call."""
        try:
            frames = outside or recording.columns.collective(row).frames
            frame = own_frame(frames) if chosen is None else min(chosen, len(frames) - 1)
            return RecordedRead(row, frame, frames, self._source(frames, frame), received(recording, row))
        except PrismError as error:
            return Failed(str(error), error.hint)

    @property
    def trace(self) -> Path | None:
        """What `record --memory` left of this rank, in the capsule or, where it still lies there, in its run."""
        if not self._run_looked_for:
            self._run_looked_for, self._trace = True, _trace_of(self._capsule)
        return self._trace

    def memory(self, request: MemoryRequest) -> MemoryRead:
        return MemoryRead(self._memory.look(request), request)

    def _source(self, frames: tuple[Frame, ...], frame: int) -> SourceView:
        return self._sources.around(frames[frame]) if frames else SourceView(note="no stack was recorded here")


def _trace_of(capsule: Capsule) -> Path | None:
    from prismdbg.jobs.capture.packed_memory import packed_trace
    from prismdbg.jobs.replay.memory_trace import recorded_trace

    if (packed := packed_trace(capsule)) is not None:
        return packed
    run = capsule.path.resolve().parent.parent
    try:
        return recorded_trace(run, capsule.manifest.rank)
    except PrismError:
        return None  # a run without traces
