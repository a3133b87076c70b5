"""prismdbg: checkpoint-and-replay debugger for distributed training.

`open` reads a recording, `replay` runs a captured rank again, `step` counts steps inside a job. Importing this package
is cheap and needs nothing but the standard library: it is imported inside training jobs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from prismdbg.api.recording import Recording
    from prismdbg.api.replay import Replay

__version__ = "0.1.0"


def open(path: str | Path) -> Recording:
    """Opens a RUN, a capsule (a folder or packed) or a folder of Flight Recorder dumps for reading.

        >>> with prismdbg.open("capsule") as recording:
        ...     print(recording.why().verdicts[0].text)
        ...     print(recording[2].at("11.1").name)
        rank 2 sent the first NaN or Inf: all_reduce (group world ...
        all_reduce

    Raises `prismdbg.errors.UsageError` where there is nothing to read, `CapsuleError` where it is damaged.
    """
    from prismdbg.api.recording import open_recording

    return open_recording(path)


def replay(
    capsule: str | Path,
    *,
    runtime: str = "",
    allow_writes: bool = False,
    timeout_s: float = 600.0,
    say: Callable[[str], None] | None = None,
) -> AbstractContextManager[Replay]:
    """Runs the rank in `capsule` among virtual peers, for as long as the `with` block lasts.

        >>> with prismdbg.replay("capsule") as rank:
        ...     print(rank.run_to("11.1"), rank.print("nan(scores)"))
        11.1 True

    runtime: docker, local or plain; by default the first that this machine has. timeout_s: how long one run may take
    without a collective. say: is given progress as texts. Errors are `prismdbg.errors.PrismError`s.
    """
    from prismdbg.api.replay import replay as begin

    return begin(capsule, runtime=runtime, allow_writes=allow_writes, timeout_s=timeout_s, say=say)


def restore_point(**objects: Any) -> int | None:
    """Register the training state, each object with `state_dict` and `load_state_dict`; call it once, as the last thing
    before the training loop.

    None, and nothing else happens, unless this process is recorded by `prismdbg record --state-every`, or replayed from
    a state snapshot. There the state is loaded, and the step is returned with which the loop goes on.
    """
    point = sys.modules.get("prismdbg.rank.recording.restore_point")
    return point.reached(objects) if point is not None else None


def step(number: int) -> None:
    """Mark the beginning of step `number` by hand; from then on optimizer steps no longer count.

    A no-op unless this process is recorded or replayed by prismdbg. A number that is negative or lower than the one
    before is ignored, and said once on stderr; the same number again begins nothing.
    """
    steps = sys.modules.get("prismdbg.rank.recording.steps")
    if steps is not None:
        steps.mark(number)
