"""Time travel in a replay: images of the rank, taken where it stands, and the way back to them.

Knows nothing of stops or verbs: who debugs decides where to save, and where to go from a place it has returned to.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.verify import check_content
from prismdbg.errors import FacilityError, UsageError
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentClient
from prismdbg.runtime.spec import RunningRank, Runtime
from prismdbg.runtime.starter_spec import clear_start
from prismdbg.session.checkpoint import Checkpoint
from prismdbg.workflows.replay import Say, connect, last_record, start, take_over
from prismdbg.workflows.replay_plan import Plan, ReplayRequest, make_plan, require_replayable
from prismdbg.workflows.runtimes import choose
from prismdbg.workflows.session_folder import session_folder


class Travel:
    """A live replay that can go back. `client` is another one after each return; `on_cut` is told to how many bytes
    the rank's output was cut, before the rank can write again."""

    def __init__(self, *, request: ReplayRequest, runtime: Runtime, plan: Plan, say: Say) -> None:
        self.capsule: Capsule = request.capsule
        self.runtime: str = runtime.name
        self.output: Path = plan.spec.output
        self.end_record = last_record(self.capsule)
        self.on_cut: Callable[[int], None] = lambda _: None
        self._runtime = runtime
        self._plan = plan
        self._say = say
        self._running: RunningRank | None = None
        self._client: AgentClient | None = None
        self._checkpoints: dict[int, Checkpoint] = {}
        self.first_record = 0

    @property
    def client(self) -> AgentClient:
        assert self._client is not None
        return self._client

    @property
    def running(self) -> RunningRank:
        assert self._running is not None
        return self._running

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Ascending by moment; the capsule's origin is the first."""
        return tuple(sorted(self._checkpoints.values(), key=lambda kept: (kept.moment, kept.number)))

    @property
    def output_length(self) -> int:
        """In bytes, now."""
        try:
            return self.output.stat().st_size
        except FileNotFoundError:
            return 0

    def why_no_images(self) -> str:
        """Why `save` cannot do it here; empty where it can."""
        return "images of the replayed rank cannot be taken yet"

    def begin(self) -> None:
        """The first start. Whatever it raises, `close` is to be called."""
        began = time.monotonic()
        self.first_record = self._start_anew()
        a, cost_s = self.capsule.manifest.moment_a, time.monotonic() - began
        self._checkpoints[0] = Checkpoint(number=0, moment=a, size_bytes=0, cost_s=cost_s)

    def save(self, moment: Moment) -> Checkpoint:
        """Keeps the place where the rank stands now, in the gate. `FacilityError` where no images can be taken."""
        raise FacilityError(self.why_no_images(), hint="going back starts the program again")

    def return_to(self, number: int) -> None:
        """The rank stands again where `number` was taken; 0: as it was given at first. Works also when the rank or its
        place is gone: then it is made anew."""
        if number not in self._checkpoints:
            raise UsageError(f"there is no checkpoint {number}", hint="`checkpoints` lists them")
        self._start_anew()

    def forget(self, number: int) -> None:
        """Gives back its room; the origin stays."""
        if number:
            self._checkpoints.pop(number, None)

    def close(self) -> None:
        """Ends the rank and removes its place."""
        self._hang_up()
        if self._running is not None:
            self._running.kill()

    def _start_anew(self) -> int:
        """A new place, and the rank in it at the capsule's origin."""
        self.close()
        self._cut_output(0)
        clear_start(self._plan.spec.session)
        self._plan.agent_path.unlink(missing_ok=True)
        self._running = start(self._runtime, self._plan, self.capsule, self._say)
        self._client = connect(self._plan, self._running)
        return take_over(self._client, self.capsule)

    def _cut_output(self, length_bytes: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self.output, length_bytes)
            self.on_cut(length_bytes)

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()


@contextmanager
def open_travel(request: ReplayRequest, say: Say) -> Iterator[Travel]:
    """Everything that is made for it is removed at the end, images too, however it ends."""
    require_replayable(request.capsule.manifest)
    check_content(request.capsule)
    with session_folder() as session:
        runtime = choose(request.runtime, request.capsule.manifest.origin, request.allow_writes)
        travel = Travel(request=request, runtime=runtime, plan=make_plan(request, session), say=say)
        try:
            travel.begin()
            yield travel
        finally:
            travel.close()
