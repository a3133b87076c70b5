"""The hang detector, fed by log folders: their names hold rank and attempt."""

from __future__ import annotations

from prismdbg.capsule.log_reader import Event
from prismdbg.diagnosis.hang import NS_PER_S, HangDetector, HangReport
from prismdbg.workflows.incidents import attempt_of, seconds


class HangWatch:
    """`bound` as in `--trigger hang=30s`; empty for none."""

    def __init__(self, bound: str) -> None:
        self._detector = HangDetector(int(seconds(bound) * NS_PER_S)) if bound else None

    def feed(self, folder: str, event: Event) -> None:
        if self._detector is not None:
            self._detector.feed(int(folder.partition(".")[0]), event, attempt_of(folder))

    def died(self, folder: str) -> None:
        if self._detector is not None:
            self._detector.died(int(folder.partition(".")[0]), attempt_of(folder))

    def due(self, now_ns: int) -> list[HangReport]:
        return self._detector.due(now_ns) if self._detector is not None else []
