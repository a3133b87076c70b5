"""The seam between what records (native kernel or Python kernels) and what steers it: agent, steps, exception hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Rescuer = Callable[[int, str, list[Any]], bool | int]
NO_STEP = 1 << 62  # later than any


class Recorder(Protocol):
    """One rank's recorder. Nothing here ever raises into a collective.

    `open` comes first, once; records are written from then on. After `handover` nothing is recorded any more.
    """

    def open(
        self,
        folder: str,
        rank: int,
        event_segment_bytes: int,
        payload_segment_bytes: int,
        stacks: bool,
        fingerprints: bool,
        nan_check: bool,
        sketches: bool,
        direct: bool,
    ) -> None:
        """Opens the log in an existing folder. `direct`: its file system always answers, and the thread that records
        writes at once. Raises `OSError`."""
        ...

    def mode(self, mode: int) -> None:
        """0: every collective passes untouched; 1: recorded."""
        ...

    def append(self, kind: int, body: bytes) -> None:
        """Any record but ISSUE and COMPLETE."""
        ...

    def start_coalescing(self, group: Any) -> None:
        """The calling thread's calls are issued together from here on, until the group's end."""
        ...

    def end_coalescing(self, group: Any, end: Callable[[], Any]) -> Any:
        """Calls `end`, and returns its Work."""
        ...

    def begin_step(self, step: int, source: int) -> None: ...

    def backward(self, on: bool) -> None:
        """The calling thread begins the backward pass: its stack is that of collectives that are issued where there is
        no Python. Off: there is none such."""
        ...

    def window(self, on: bool, steps: int, size_bytes: int) -> None:
        """Payloads from now on; `steps` <= 0 keeps all, within `size_bytes`."""
        ...

    def keep_from(self, step: int) -> None:
        """Payloads of this step and later are not dropped for their age; `NO_STEP`: that holds for none."""
        ...

    def keep_small(self, each_bytes: int, total_bytes: int) -> tuple[int, int]:
        """Payloads of at most `each_bytes` are kept outside of the window from now on, `total_bytes` of them together,
        and one that is larger than the window is left out alone. 0, 0: no longer; those that were kept so are then the
        oldest of the window. Gives, since the last call, the bytes that were left out or dropped, and those of small
        payloads for which there was no more room outside of the window."""
        ...

    def park(self, on: bool) -> None:
        """Every thread stops at the entry of its next collective, until `park(False)`."""
        ...

    def refuse(self, on: bool) -> int:
        """From now on collectives of the calling thread raise an exception in place of what they do, or no longer.
        Gives how many did since that was switched on."""
        ...

    def parked(self) -> int: ...

    def in_flight(self) -> list[int]: ...

    def close_log(self) -> None: ...

    def reopen_log(self) -> None: ...

    def tidy(self) -> None:
        """At the end of the program: waits for what is still to be written, some seconds at most. Recording may go on.
        `atexit` calls it, too."""
        ...

    def stats(self) -> dict[str, Any]:
        """`entering`: threads on their way from the gate to their call's record, hashing what it sends."""
        ...

    def append_held(self, kind: int, body: bytes) -> None:
        """As `append`, for what is written often: another thread gets Python's lock only where the log is not free."""
        ...

    def moment(self) -> tuple[int, int]:
        """Step and collective; cheap."""
        ...

    def sequences(self) -> list[tuple[str, str, int, int, int]]:
        """(group, op, peer, tag, the number that comes next) of all; op is empty but for point-to-point."""
        ...

    def new_world(self, suffix: str) -> None:
        """All process groups are destroyed. Names of later ones end with `suffix` (`c10d/worlds.py`)."""
        ...

    def on_group(self, callback: Callable[[Any], None]) -> None:
        """`callback(process_group)` before the first record of each group."""
        ...

    def handover(self, rescuer: Rescuer) -> None:
        """Recording ends; parked threads issue their call again to the kernels installed since. A work recorded
        before whose backend fails or never completed asks `rescuer(record_id, op, outputs)` to fill them: False where
        nobody can, the sender's rank in the group (an int) of a receive from any source, else True."""
        ...
