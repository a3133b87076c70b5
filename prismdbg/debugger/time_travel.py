"""Time travel in a replay: checkpoints of the rank, taken where it stands, and the way back to them.

Knows nothing of stops or verbs: who debugs decides where to save, and where to go from a place it has returned to.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.checkpoint.engine import bound_s
from prismdbg.checkpoint.gpu import known_bytes
from prismdbg.debugger.saved_checkpoints import SavedCheckpoints, error_of, with_saving
from prismdbg.errors import FacilityError, RankLost, UsageError
from prismdbg.jobs.capture.costs import image_bytes
from prismdbg.jobs.replay.replay import Say, connect, last_record, say_missing, start, take_over, unhidden
from prismdbg.jobs.replay.replay_plan import Plan, ReplayRequest, make_plan
from prismdbg.jobs.replay.runtimes import choose, uses_gpu
from prismdbg.jobs.replay.session_folder import checkpoint_folder, session_folder
from prismdbg.jobs.storage.verify import require_replayable
from prismdbg.model.deadline import NEVER
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentClient, Heard
from prismdbg.runtime.rank_folder import Output, RankFolder
from prismdbg.runtime.runtime import RunningRank, Runtime
from prismdbg.runtime.spec import RANK
from prismdbg.runtime.starter_control import Answer, StarterControl
from prismdbg.runtime.starter_spec import clear_start
from prismdbg.session.causes import Unhidden
from prismdbg.session.checkpoint import Checkpoint

ORIGIN = 0


class Travel:
    """A live replay that can go back. `client` is another one after each save and each return, and
    the only one that may be connected when a checkpoint is taken. `on_cut` is told to how many bytes
    the rank's output was cut, while the rank stands."""

    def __init__(
        self,
        *,
        request: ReplayRequest,
        runtime: Runtime,
        plan: Plan,
        saved: SavedCheckpoints,
        why_not: str,
        say: Say,
    ) -> None:
        """`why_not`: the reason why no checkpoints can be taken; empty where they can."""
        self._request = request
        self.capsule: Capsule = request.capsule
        self.runtime: str = runtime.name
        self.own: RankFolder = plan.own
        self.output: Output = plan.own.output
        self.why_no_checkpoints = why_not
        self.strict = request.strict
        self.unhidden: Unhidden = unhidden(runtime, plan, request.capsule)
        self.end_record = last_record(self.capsule)
        self.first_record = 0
        self.on_cut: Callable[[int], None] = lambda _: None
        self._runtime = runtime
        self._plan = plan
        self._saved = saved
        self._say = say
        self._running: RunningRank | None = None
        self._was_started = False
        self._client: AgentClient | None = None
        self._checkpoints: dict[int, Checkpoint] = {}
        self._next = ORIGIN + 1
        self._has_origin = False  # as a checkpoint
        self._seals: dict[int, str] = {}

    @property
    def client(self) -> AgentClient:
        assert self._client is not None, "call `begin` first"
        return self._client

    @property
    def running(self) -> RunningRank:
        assert self._running is not None, "call `begin` first"
        return self._running

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Ascending by position; the capsule's origin is the first."""
        return tuple(sorted(self._checkpoints.values(), key=lambda kept: (kept.position, kept.number)))

    @property
    def output_length(self) -> int:
        """In bytes, now."""
        return self.output.size_bytes

    def begin(self) -> None:
        """The first start. Whatever it raises, `close` is to be called."""
        began = time.monotonic()
        self._start_at(ORIGIN)
        a, cost_s = self.capsule.manifest.moment_a, time.monotonic() - began
        self._checkpoints[ORIGIN] = Checkpoint(number=ORIGIN, moment=a, size_bytes=0, cost_s=cost_s)

    def stands_first_at(self, moment: Moment) -> None:
        """By this moment the origin is called from now on, as the rank that stands there is: the manifest has that of
        the first collective to come."""
        self._checkpoints[ORIGIN] = replace(self._checkpoints[ORIGIN], moment=moment)

    def save(self, moment: Moment, number: int | None = None, side: str = "") -> Checkpoint:
        """Keeps the place where the rank stands now. `FacilityError` where no checkpoint can be taken; the rank stands
        on, whatever is raised. `number`: that of a checkpoint that was forgotten, where this one takes its place."""
        if self.why_no_checkpoints:
            hint = "go back without one: this restarts the program"
            raise FacilityError(f"no checkpoint can be taken: {self.why_no_checkpoints}", hint=hint)
        self._saved.require_room(self._expected_bytes())
        number, began = number or self._next, time.monotonic()
        self._next = max(self._next, number + 1)
        answer = self._save_alone(number)
        if answer.refusal:
            self._saved.remove(number)
            raise error_of(self._plan.spec, answer, f"take a checkpoint of the rank at {moment}")
        kept = Checkpoint(
            number=number,
            moment=moment,
            size_bytes=self._saved.size_bytes(number),
            cost_s=time.monotonic() - began,
            side=side,
        )
        self._checkpoints[number] = kept
        return kept

    def keep_origin(self) -> None:
        """Of a program that was started and stands at its beginning: going back there need not start it again. Where no
        checkpoint can be taken it is."""
        if self.why_no_checkpoints or not self.capsule.manifest.origin.starts_program:
            return
        with contextlib.suppress(FacilityError):
            self._saved.require_room(self._expected_bytes())
            self._has_origin = not self._save_alone(ORIGIN).refusal
        if not self._has_origin:
            self._saved.remove(ORIGIN)

    def return_to(self, number: int) -> None:
        """The rank stands again where `number` was taken; 0: as it was given at first. Works also when the rank or its
        place is gone: then it is made anew."""
        if number not in self._checkpoints:
            raise UsageError(f"no checkpoint number {number}", hint="type `checkpoints` to list them")
        self._hang_up()
        has_checkpoint = number != ORIGIN or self._has_origin
        if has_checkpoint and self._return_in_place(number):
            self._client = connect(self._plan, self.running)
        else:
            has_checkpoint = number != ORIGIN
            self._start_at(number)
        self.on_cut(self._saved.output_bytes(number) if has_checkpoint else 0)

    def forget(self, number: int) -> None:
        """Gives back its room; the origin stays."""
        if number != ORIGIN and self._checkpoints.pop(number, None) is not None:
            self._saved.remove(number)

    def close(self) -> None:
        """Ends the rank and removes its place."""
        self._hang_up()
        if self._running is not None:
            self._running.kill()

    def _save_alone(self, number: int) -> Answer:
        """The engine refuses a rank that somebody outside its network namespace is connected to."""
        heard: Heard = []
        least_s = bound_s(self._most_bytes())
        try:
            heard = self.client.leave()
            answer = self._control().save(str(number), least_s)
            self._seals[number] = answer.seal
            return answer
        finally:
            self._client = connect(self._plan, self.running)
            self._client.hear(heard)

    def _return_in_place(self, number: int) -> bool:
        """False where the place is gone, or did not get the rank back: another one may."""
        try:
            answer = self._control().return_to(str(number), self._seals[number], self._restored_in_s(number))
        except RankLost:
            return False
        if answer.refusal:
            self._say(f"{error_of(self._plan.spec, answer, 'return in place')}; trying in a new one")
        for path in answer.left:
            self._say(
                f"{path} may differ from what it was: the program overwrote it, removed it or has it mapped, and no "
                "copy is kept of files that existed before the replay or have more than 256 MiB"
            )
        return not answer.refusal

    def _start_at(self, number: int) -> None:
        """A new place, and the rank in it."""
        self.close()
        clear_start(self._plan.spec.session)
        if number == ORIGIN:
            self.own.renew()
        else:
            self.own.mend(self._plan.agent)
        say = _nothing if self._was_started else self._say  # again: a way back, which is told as one
        deadline = NEVER if self._was_started else self._request.deadline
        self._running = start(self._runtime, self._plan_at(number), self.capsule, say, deadline, self.unhidden)
        self._was_started = True
        self._client = connect(self._plan, self.running, deadline)
        if number == ORIGIN:
            self.first_record = take_over(self._client, self._request)

    def _plan_at(self, number: int) -> Plan:
        saving = self._plan.spec.saving
        if number == ORIGIN or saving is None:
            return self._plan
        timeout_s = max(saving.timeout_s, self._restored_in_s(number))
        saving = replace(saving, start_from=str(number), seal=self._seals[number], timeout_s=timeout_s)
        return replace(self._plan, spec=replace(self._plan.spec, saving=saving))

    def _control(self) -> StarterControl:
        saving = self._plan.spec.saving
        assert saving is not None, "only called where checkpoints can be taken"
        return StarterControl(self._plan.spec.session, saving.timeout_s)

    def _restored_in_s(self, number: int) -> float:
        return bound_s(self._saved.size_bytes(number))

    def _most_bytes(self) -> int:
        """Of the next checkpoint, for its bound: that of a rank that cannot be asked is as large as it may be."""
        return self._expected_bytes() if self._held_bytes() is not None else self._plan.spec.limits.memory_bytes

    def _expected_bytes(self) -> int:
        """Of the next checkpoint, as far as one can tell: as the largest so far, the capsule's own, or what the rank
        holds now."""
        own = [entry.size_bytes for name, entry in self.capsule.manifest.files.items() if _is_image(name)]
        return max(sum(own), self._held_bytes() or 0, *(kept.size_bytes for kept in self._checkpoints.values()))

    def _held_bytes(self) -> int | None:
        """Another user's cannot be asked what it holds: Docker's."""
        if (pid := self.running.rank_pid()) is not None:
            with contextlib.suppress(RankLost):
                return image_bytes(pid) + known_bytes(pid)
        return None

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()


def _nothing(_: str) -> None:
    return None


def _is_image(name: str) -> bool:
    return name.startswith(f"{layout.CHECKPOINT}/")


@contextmanager
def open_travel(request: ReplayRequest, say: Say) -> Iterator[Travel]:
    """Everything that is made for it is removed at the end, checkpoints too, however it ends."""
    request = replace(request, capsule=require_replayable(request.capsule))
    say_missing(request, say)
    with session_folder() as session, RankFolder(session / RANK) as own, checkpoint_folder() as folder:
        runtime = choose(
            request.runtime,
            request.capsule.manifest.origin,
            request.allow_writes,
            on_gpu=uses_gpu(request.capsule),
        )
        plan, why_not = with_saving(make_plan(request, session, own), runtime, folder)
        travel = Travel(
            request=request,
            runtime=runtime,
            plan=plan,
            saved=SavedCheckpoints(folder),
            why_not=why_not,
            say=say,
        )
        try:
            travel.begin()
            yield travel
        finally:
            travel.close()
