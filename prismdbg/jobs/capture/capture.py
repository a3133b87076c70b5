"""`prismdbg capture`: a live rank's checkpoint at moment A, while the job goes on, and the log that follows it."""

from __future__ import annotations

import errno
import math
import os
import platform
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from prismdbg.capsule import spawned
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.coverage import row_of
from prismdbg.capsule.log.events import StepMark
from prismdbg.capsule.log.follower import LogFollower
from prismdbg.capsule.manifest import Incident, IncidentKind, Origin
from prismdbg.capsule.partial import is_abandoned, partial_folder, remove_abandoned
from prismdbg.capsule.rank_json import given_through_a_pipe
from prismdbg.checkpoint import choice
from prismdbg.checkpoint.engine import DumpReport, Engine, bound_s
from prismdbg.checkpoint.gpu import MOVE_BOUND_S, is_used, known_bytes
from prismdbg.errors import CapsuleError, CheckpointError, FacilityError, PrismError, RankLost, UsageError, WaitTimeout
from prismdbg.jobs.capture.agent_sockets import answers, remove_dead_sockets
from prismdbg.jobs.capture.assemble import Ingredients, assemble, kept_from_the_start
from prismdbg.jobs.capture.capture_state import capture_state
from prismdbg.jobs.capture.communicators import require_saveable
from prismdbg.jobs.capture.costs import SPARE_BYTES, image_bytes, predict_image
from prismdbg.jobs.capture.namespaces import other_namespace
from prismdbg.jobs.capture.rank_lock import BOUND_S, alone_with_rank
from prismdbg.jobs.capture.requests import (
    ENDED_HINT,
    RequestJson,
    captured_elsewhere,
    has_local_logs,
    is_elsewhere,
    needs_no_supervisor,
)
from prismdbg.jobs.capture.states import remove_unfinished, usable_states
from prismdbg.jobs.storage.ranks_alive import is_alive, is_in_a_container_here, still_runs, stopped_pid
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, remove_temporaries, write_json
from prismdbg.log.columns import LAST_BYTES
from prismdbg.log.folding import split_before
from prismdbg.log.rank_log import read_log
from prismdbg.model.meanwhile import Tell, unheard, working
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted
from prismdbg.protocol.client import AgentClient, AgentError, NotWaitedFor
from prismdbg.settings.boot import boot_id
from prismdbg.settings.process_stat import start_ticks
from prismdbg.settings.rank_config import RankConfig
from prismdbg.settings.state_hold import remove_abandoned_holds

LEASE_S = 120.0
GPU_LEASE_S = 300.0  # the state of a GPU is moved to memory and back meanwhile; the rank gives no longer one
_IMAGES = "images"
_NEEDS = "needs.json"
LEFTOVER = f".{_IMAGES}.partial-"
HANGS_S = 10.0  # what was in flight at the dump may complete once the rank goes on; a rank that hangs takes no step
POLL_S = 0.005
WINDOW_S = 30.0
AGAIN_S = 5.0
LEAVE_S = 1.0  # a rank that answers lets go at once; another one reads what it was asked when it goes on
ENDING_S = 2.0
STARTING_S = 10.0
PROGRESS_S = 1.0
STOPPED_S = 2.0  # a profiler stops a process for a moment
UNMARKED_S = 3.0  # so long without any step, and it is said that there may never be one
SHOWN = 4
ENDED_ERRNOS = (errno.ENOENT, errno.ESRCH, errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE)

Say = Callable[[str], None]
GivenUp = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a rank is given to come to its next collective, and works in flight to complete."""

    park_s: float
    drain_s: float


PATIENT = Patience(park_s=60.0, drain_s=10.0)
HUNG = Patience(park_s=2.0, drain_s=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A checkpoint and where it was taken. `paused_ns`: how long the rank was held."""

    images: Path
    moment: Moment
    past_records: int
    in_flight: tuple[int, ...]
    report: DumpReport
    paused_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """`window_steps`: how many whole steps of the log complete the capsule. `node`: whose supervisor captures it, which
    asks no other for its own ranks. `given_up`: nobody waits for the capsule any more."""

    run: RunFolder
    rank: int
    output: Path
    window_steps: int = 1
    origin: Origin = Origin.IMAGE
    timeout_s: float = 600.0
    incident: Incident | None = None
    patience: Patience = PATIENT
    node: str = ""
    given_up: GivenUp | None = None


def require_new(output: Path) -> None:
    """Before anybody waits for it."""
    if output.exists():
        raise UsageError(f"{output} already exists", hint="choose another name, or remove it first")


def capture(request: CaptureRequest, say: Say) -> Capsule:
    """Takes the image, lets the rank go, waits for the window, writes the capsule."""
    require_new(request.output)
    folder = request.run.latest(request.rank)
    incident = request.incident or Incident(kind=IncidentKind.REQUEST, text="captured on request")
    if request.origin is Origin.START and (request.node or not has_local_logs(folder)):
        _require_startable(request, folder)
        return _capture_from_start(request, folder, incident)
    of_state = request.origin is Origin.STATE
    if is_elsewhere(folder, request.node) and not (of_state and needs_no_supervisor(request.run, folder)):
        asked: RequestJson = {
            "rank": request.rank,
            "window_steps": request.window_steps,
            "timeout_s": math.ceil(request.timeout_s),
            "origin": str(request.origin),
        }
        with _told_what_still_works(request.run, folder):
            return captured_elsewhere(request.run, folder, request.output, asked, say)
    if of_state:
        _require_startable(request, folder)
        return capture_state(
            request.run,
            folder,
            request.output,
            incident,
            whole_steps=request.window_steps,
            timeout_s=request.timeout_s,
            given_up=request.given_up,
        )
    with _told_what_still_works(request.run, folder):
        await_agent(folder, say)  # first: a rank out of reach is named as such
    remove_leftovers(request.run)
    with partial_folder(request.run.path / _IMAGES) as partial:
        return _capture_image(request, folder, partial / _IMAGES, incident, say)


def _require_startable(request: CaptureRequest, folder: Path) -> None:
    """`UsageError` where `replay` would refuse the capsule."""
    if why := _cannot_start(folder):
        raise UsageError(
            f"no replay can start rank {request.rank} again: {why}",
            hint="leave --origin out, or use torchrun; "
            f"to see its log: prismdbg open {os.path.relpath(request.run.path)} --rank {request.rank}",
        )


def _cannot_start(folder: Path) -> str:
    return given_through_a_pipe(read_json(folder / "rank.json"), is_kept=(folder / spawned.FILE).exists())


@contextmanager
def _told_what_still_works(run: RunFolder, folder: Path) -> Iterator[None]:
    try:
        yield
    except RankLost as error:
        if error.hint == ENDED_HINT:
            with suppress(PrismError):  # a damaged log is no reason of this error
                error.hint = _after_its_end(run, folder) or ENDED_HINT
        raise


def _after_its_end(run: RunFolder, folder: Path) -> str:
    """How a rank that has ended can be captured; empty where nothing that a replay needs was kept."""
    if _cannot_start(folder):
        return ""
    if kept_from_the_start(folder):
        return "add --origin start: all that it received since its start was kept"
    return "add --origin state: a state snapshot of it was kept" if usable_states(run, folder) else ""


def _capture_image(request: CaptureRequest, folder: Path, images: Path, incident: Incident, say: Say) -> Capsule:
    config = RankConfig.load(request.run.config)
    holder = new_holder()
    with told_of_its_end(folder):
        say(_require_room(request, int(read_json(folder / "rank.json")["pid"])))
        with agent_of(folder) as agent:
            _take_window(agent, config, holder)
    try:
        taken = take_image(
            folder,
            images,
            say,
            request.patience,
            window_steps=request.window_steps,
            holder=holder,
            given_up=request.given_up,
        )
        needs = min(taken.past_records, *taken.in_flight) if taken.in_flight else taken.past_records
        write_json(images.parent / _NEEDS, {"rank": folder.name, "from_record": needs})
        with working() as tell:
            end = _follow(folder, taken, request, say, tell)
        return assemble(
            Ingredients(
                run=request.run,
                folder=folder,
                output=request.output,
                origin=Origin.IMAGE,
                incident=incident,
                past_records=taken.past_records,
                in_flight=taken.in_flight,
                images=images,
                last_moment=end,
            )
        )
    finally:  # not before the capsule is written: a smaller window drops what it holds
        _window_back(folder, config, holder)


def _require_room(request: CaptureRequest, pid: int) -> str:
    """As `predict_image`. The disk that a job writes to, too, is not filled where nobody asked for the capture."""
    folders = (request.run.path, request.output.parent)
    if request.incident is None:
        return predict_image(pid, *folders)
    return predict_image(pid, *folders, spare_bytes=SPARE_BYTES, hint="free some space on the disk of RUN")


def _take_window(agent: AgentClient, config: RankConfig, holder: Mapping[str, Any]) -> None:
    """All payloads from here on. Refused while another capture has the window."""
    try:
        agent.ask("window", timeout_s=WINDOW_S, on=True, steps=0, size_bytes=config.window_bytes, **holder)
    except BaseException:
        # Also a rank that does not answer reads it, behind the first one, when it can.
        with suppress(PrismError):
            agent.ask("window", timeout_s=LEAVE_S, **_given_back(config, holder))
        raise


def needed_by_captures(run: RunFolder) -> dict[str, int]:
    """By log folder the first collective that a capture in progress needs: the log is not shortened beyond that."""
    found: dict[str, int] = {}
    for path in run.path.glob(f"{LEFTOVER}*/{_NEEDS}"):
        if not is_abandoned(path.parent) and (needs := read_json(path)):
            found[needs["rank"]] = min(found.get(needs["rank"], needs["from_record"]), needs["from_record"])
    return found


def remove_leftovers(run: RunFolder) -> None:
    """Images of captures, halves of checkpoints, snapshots and reports, holds on snapshots, and agents' sockets, whose
    process was killed.

    Who writes one holds its lock, which tells that it lives from wherever one looks: another container, say.
    """
    remove_dead_sockets()
    remove_abandoned_holds(run.states)
    remove_unfinished(run)
    for folder in (run.path, *run.checkpoints.glob("*/")):
        remove_abandoned(folder)
    for folder in (run.path, run.nodes, *run.nodes.glob("*/")):
        remove_temporaries(folder)


def _capture_from_start(request: CaptureRequest, folder: Path, incident: Incident) -> Capsule:
    if not kept_from_the_start(folder):
        raise CapsuleError(
            f"rank {folder.name} cannot be replayed from the program's start: not all of the received data was kept",
            hint=f"capture a checkpoint; `prismdbg status {request.run.path}` shows what is lost"
            if request.run.keeps_all
            else "record with --window all, or capture a checkpoint",
        )
    return assemble(
        Ingredients(run=request.run, folder=folder, output=request.output, origin=Origin.START, incident=incident)
    )


def socket_of(folder: Path) -> Path:
    """Where the agent of the rank in this log folder listens. `RankLost` where the process has ended."""
    rank = read_json(folder / "rank.json")
    if not rank:
        raise RankLost(
            f"rank {folder.name} cannot be captured: its folder in RUN has no rank.json",
            hint="capture another rank: the recorder of this rank failed to start, or the rank was killed early",
        )
    _refuse_out_of_reach(folder, rank)
    if not still_runs(rank):
        raise RankLost(f"rank {folder.name} has ended", hint=ENDED_HINT)
    return Path(rank["socket"])


def await_agent(folder: Path, say: Say) -> None:
    """Waits until the rank's agent answers: a rank that has just started has its folder first, then rank.json, then
    its agent. Raises as `socket_of` does; an agent that does not answer in time is the next request's error."""
    began, said = time.monotonic(), False
    while not _answers(folder) and time.monotonic() - began < STARTING_S:
        if not said and time.monotonic() - began > PROGRESS_S:
            said = True
            say(f"rank {folder.name} has just started; waiting up to {STARTING_S:g} s for its agent")
        time.sleep(POLL_S)
    socket_of(folder)
    refuse_stopped(folder)


def refuse_stopped(folder: Path) -> None:
    """`WaitTimeout` where the rank's process stays stopped: it would answer nothing."""
    deadline = time.monotonic() + STOPPED_S
    while (pid := stopped_pid(read_json(folder / "rank.json"))) is not None:
        if time.monotonic() > deadline:
            raise WaitTimeout(
                f"rank {folder.name} cannot answer: its process {pid} is stopped (state T of `ps`)",
                hint=f"run `kill -CONT {pid}` if a signal stopped it, or let the debugger that holds it continue it, "
                "then capture it again",
            )
        time.sleep(POLL_S)


def _answers(folder: Path) -> bool:
    return bool(read_json(folder / "rank.json")) and answers(socket_of(folder))


@contextmanager
def agent_of(folder: Path, *, bound_s: float = BOUND_S, given_up: GivenUp | None = None) -> Iterator[AgentClient]:
    """A connection to the rank's agent, while nobody else has one."""
    socket = socket_of(folder)
    with alone_with_rank(socket, bound_s=bound_s, given_up=given_up), AgentClient(socket) as agent:
        yield agent


@contextmanager
def told_of_its_end(folder: Path) -> Iterator[None]:
    """What fails in here because the rank's process has ended, or is stopped, is told as that, not as what broke at the
    moment."""
    try:
        yield
    except (RankLost, CheckpointError, WaitTimeout, OSError) as error:
        if isinstance(error, OSError) and error.errno not in ENDED_ERRNOS:
            raise
        if _ends_now(folder):
            raise RankLost(f"rank {folder.name} has ended while it was being captured", hint=ENDED_HINT) from error
        if isinstance(error, WaitTimeout):
            refuse_stopped(folder)
        raise


def _ends_now(folder: Path) -> bool:
    """A process that ends lets go of its socket a little before it is gone."""
    deadline = time.monotonic() + ENDING_S
    while still_runs(rank := read_json(folder / "rank.json")):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return bool(rank)


def _refuse_out_of_reach(folder: Path, rank: Mapping[str, Any]) -> None:
    """A rank on another node, in a container or of another user is named as such, with what works instead."""
    name, node, here = folder.name, rank.get("hardware", {}).get("node"), platform.node()
    instead = f"or {_from_the_start(folder)}: this needs only the run folder"
    if isinstance(node, str) and node != here and not is_in_a_container_here(rank):
        raise FacilityError(
            f"rank {name} runs on node {node}, but this command runs on node {here}",
            hint=f"run the capture there, {instead}",
        )
    if rank.get("boot_id", boot_id()) != boot_id():
        raise FacilityError(
            f"rank {name} runs on another machine, or ran before this machine was rebooted",
            hint=f"run the capture there, {instead}",
        )
    _refuse_incomplete(folder / "rank.json", rank)
    if rank["pid_namespace"] != Path("/proc/self/ns/pid").stat().st_ino:
        raise FacilityError(
            f"rank {name} runs in another PID namespace than this command: one of the two is in a container",
            hint=f"run the capture where the rank runs, {instead}",
        )
    if rank["uid"] != os.getuid() and os.getuid() != 0:
        hint = f"run the capture as that user or as root, {instead}"
        raise FacilityError(f"rank {name} runs as user {rank['uid']}", hint=hint)
    if still_runs(rank) and (other := other_namespace(int(rank["pid"]))):
        raise FacilityError(
            f"rank {name} runs in another {other} namespace than this command: no replay could restore its checkpoint",
            hint=f"run the capture where the rank runs, {instead}",
        )


def _refuse_incomplete(path: Path, rank: Mapping[str, Any]) -> None:
    """`CapsuleError` where a field is missing without which nobody can tell where the rank runs and who asks it. What
    is there has its type: `read_json`."""
    missing = [name for name in ("pid", "pid_namespace", "uid", "socket") if name not in rank]
    if not isinstance(rank.get("hardware", {}).get("node"), str):
        missing.append("hardware.node")
    if missing:
        raise CapsuleError(
            f"{path} is incomplete: it lacks {', '.join(missing)}",
            hint="run `prismdbg why RUN`, which reads the logs without it; if RUN is a copy, copy it again",
        )


def _from_the_start(folder: Path) -> str:
    """What needs no checkpoint of the rank with this log folder."""
    from_start = "capture with --origin start"
    return from_start if RunFolder(folder.parent.parent).keeps_all else f"record with --window all and {from_start}"


def take_image(
    folder: Path,
    images: Path,
    say: Say,
    patience: Patience = PATIENT,
    *,
    window_steps: int = 0,
    holder: Mapping[str, Any] | None = None,
    given_up: GivenUp | None = None,
) -> Taken:
    """Parks the rank, dumps it, lets it go. The job stands still only for this; it goes on whatever fails.

    `window_steps`: the parameters' hash is wanted that many whole steps later; asked for while the rank stands, for it
    may come there before anybody could ask. `holder`: who captures, from `new_holder`. `NotWaitedFor` soon after
    `given_up` says so, except while the image is written. An image that no runtime could restore is taken once more,
    and then refused.
    """
    held_by, engine = holder or new_holder(), choice.find()
    require_saveable(folder)
    with told_of_its_end(folder), alone_with_rank(socket_of(folder), given_up=given_up):
        taken = _take_once(engine, folder, images, say, patience, window_steps, held_by, given_up)
    if left := taken.report.unrestorable:
        say(f"rank {folder.name}: the checkpoint contains {left[0]}, which no replay can restore; taking another one")
        shutil.rmtree(images)
        with told_of_its_end(folder), alone_with_rank(socket_of(folder), given_up=given_up):
            taken = _take_once(engine, folder, images, say, patience, window_steps, held_by, given_up)
    if left := taken.report.unrestorable:
        shutil.rmtree(images)
        raise CheckpointError(
            f"the process of rank {folder.name} cannot be checkpointed: it has files open that no replay can reopen: "
            f"{', '.join(map(str, left[:SHOWN]))}",
            hint=f"close them in the program before the capture, or {_from_the_start(folder)}",
        )
    return taken


def _take_once(
    engine: Engine,
    folder: Path,
    images: Path,
    say: Say,
    patience: Patience,
    window_steps: int,
    holder: Mapping[str, Any],
    given_up: GivenUp | None,
) -> Taken:
    pid = int(read_json(folder / "rank.json")["pid"])
    on_gpu = is_used(pid)
    lease_s = GPU_LEASE_S if on_gpu else LEASE_S
    timeout_s = bound_s(image_bytes(pid) + (known_bytes(pid) if on_gpu else 0))
    with AgentClient(socket_of(folder)) as agent:
        try:
            lease_ends = time.monotonic() + lease_s
            # Its answer may come too late: then it is parked all the same.
            agent.ask("park", given_up=given_up, lease_s=lease_s, **holder)
            with working() as tell:
                in_flight, is_parked = _wait_parked(agent, say, patience, given_up, tell)
            stands_since = time.monotonic_ns()
            where = agent.ask("close_log", given_up=given_up, **holder)
            moment = Moment(int(where["step"]), int(where["collective"]))
            if window_steps:
                agent.ask("hash_at", given_up=given_up, step=step_after(moment, window_steps))
        except BaseException:
            # Also a rank that does not answer reads it, behind `park`, when it goes on. What was in hand says more.
            with suppress(PrismError):
                agent.ask("release", timeout_s=LEAVE_S, **holder)
            raise
        agent.leave()  # nothing of this connection is in the image
    frozen_by = time.monotonic() + (MOVE_BOUND_S if on_gpu else 0.0)  # then the rank stands, whatever its lease says
    try:
        report = engine.dump(pid, images, timeout_s=timeout_s)
    finally:
        was_held = _release(folder, holder, given_up)
    if not was_held and frozen_by > lease_ends:
        shutil.rmtree(images)
        raise CheckpointError(
            f"the checkpoint of rank {folder.name} took longer than the rank may be paused; the rank continued "
            "before the checkpoint was complete",
            hint="capture it again when the machine is less busy",
        )
    paused = time.monotonic_ns() - stands_since
    cost = report()
    now = "the job continues" if is_parked and not in_flight else "the rank continues"
    say(f"rank {folder.name}: checkpoint of {cost.images_bytes >> 20} MiB in {paused / 1e9:.2f} s; {now}")
    return Taken(
        images=images,
        moment=moment,
        past_records=int(where["record_id"]),
        in_flight=tuple(in_flight),
        report=cost,
        paused_ns=paused,
    )


def _release(folder: Path, holder: Mapping[str, Any], given_up: GivenUp | None) -> bool:
    """Whether the rank was still held: False where its lease had ended. A rank that has ended needs none, and its image
    may be whole. One that was stopped meanwhile reads it when it goes on."""
    try:
        with AgentClient(socket_of(folder)) as agent:
            answer = agent.ask("release", given_up=given_up, **holder)
            return bool(answer.get("was_held", True))  # ranks of older versions do not say it
    except NotWaitedFor:
        return True
    except RankLost:
        if not _ends_now(folder):
            raise
        return True


def new_holder() -> dict[str, Any]:
    """For whom the rank is held, and payloads are kept: when this process is gone, it goes on as before. `token` tells
    one capture from another."""
    return {"holder": os.getpid(), "holder_ticks": start_ticks(os.getpid()), "token": secrets.token_hex(8)}


def _wait_parked(
    agent: AgentClient, say: Say, patience: Patience, given_up: GivenUp | None = None, tell: Tell = unheard
) -> tuple[list[int], bool]:
    """Until a thread is parked, none is on its way into a collective and nothing is in flight; what does not drain is
    captured in flight, as a hang is.

    What is in flight, and whether a thread is parked: a rank that hangs elsewhere comes to no collective.
    """
    deadline = time.monotonic() + patience.park_s
    drained_by = 0.0
    while True:
        status = agent.ask("status", given_up=given_up)
        in_flight, on_its_way = list(status["in_flight"]), int(status.get("entering", 0))
        now = time.monotonic()
        if status["parked"] and not in_flight and not on_its_way:
            return [], True
        if not status["parked"]:  # a terminal that takes no output may hold this command: not while it holds the rank
            what = counted(len(in_flight), "collective") + " in flight" if in_flight else "the rank's next collective"
            tell(f"waiting for {what}, at most {patience.park_s:g} s")
        if in_flight and not on_its_way:
            drained_by = drained_by or now + patience.drain_s
            if now > drained_by:
                say(f"captured with {counted(len(in_flight), 'collective')} in flight")
                return in_flight, bool(status["parked"])
        if now > deadline and on_its_way:
            raise WaitTimeout(
                f"no checkpoint was taken: after {patience.park_s:g} s, {counted(on_its_way, 'thread')} still computed "
                "the fingerprint of what a collective sends",
                hint="capture the rank again",
            )
        if now > deadline:
            say(f"the rank issued no collective within {patience.park_s:g} s; captured at its current position")
            return in_flight, bool(status["parked"])
        time.sleep(POLL_S)


def step_after(moment: Moment, whole_steps: int) -> int:
    """The step that begins once so many whole steps have passed: one that is under way at `moment` is none."""
    return moment.step + (moment.collective > 0) + whole_steps


def _follow(folder: Path, taken: Taken, request: CaptureRequest, say: Say, tell: Tell = unheard) -> Moment | None:
    """Waits until the window's steps are in the log, or the rank ends; gives the last moment that belongs to it."""
    if request.window_steps == 0 or (taken.in_flight and request.incident is not None):
        return None
    target = step_after(taken.moment, request.window_steps)
    say(f"rank {folder.name}: checkpoint taken after {taken.moment}; waiting for step {target}")
    began, moved, marked = time.monotonic(), False, taken.moment.step > 0
    here = taken.moment.step
    since = split_before(folder, taken.past_records)[1][0].of_file
    reader, deadline = LogFollower(folder, since), began + request.timeout_s
    pid = int(read_json(folder / "rank.json")["pid"])
    while True:
        alive = is_alive(pid)  # a zombie is not
        steps = [event.step for event in reader.poll() if isinstance(event, StepMark)]
        if not (marked := marked or bool(steps)) and time.monotonic() > began + UNMARKED_S:
            marked = True
            say(_unmarked(folder, target, request))
        here = max(here, *steps) if steps else here
        tell(f"rank {folder.name}: in step {here}, waiting for step {target}")
        moved = moved or here > taken.moment.step
        if any(step >= target for step in steps):
            return Moment(target - 1, 1 << 60)
        if not alive and row_of(log := read_log(folder, LAST_BYTES), taken.past_records) == len(log.collectives):
            raise RankLost(
                f"rank {folder.name} has ended at its checkpoint: there is nothing to replay, no capsule was created",
                hint=ENDED_HINT,
            )
        if not alive:
            say(f"rank {folder.name} ended before step {target}; the capsule ends there")
            return None
        if taken.in_flight and time.monotonic() > began + HANGS_S and not moved:
            say(f"rank {folder.name} takes no step: it hangs; the capsule contains the data so far")
            return None
        if request.given_up is not None and request.given_up():
            raise NotWaitedFor(f"the wait for step {target} of rank {folder.name} was cancelled")
        if time.monotonic() > deadline and request.incident is not None:  # nobody is there to ask again
            say(f"rank {folder.name} did not reach step {target}; the capsule contains the data so far")
            return None
        if time.monotonic() > deadline:
            raise WaitTimeout(
                f"waited {request.timeout_s:g} s for step {target} of rank {folder.name}",
                hint="give a longer --timeout, or --window 0 for the data so far: the job is slow or hangs",
            )
        time.sleep(0.05)


def _unmarked(folder: Path, target: int, request: CaptureRequest) -> str:
    return (
        f"rank {folder.name} has not completed an optimizer step yet; waiting up to {request.timeout_s:g} s for step "
        f"{target}. If the job never calls optimizer.step(), press Ctrl-C and capture with --window 0"
    )


def _window_back(folder: Path, config: RankConfig, holder: Mapping[str, Any]) -> None:
    """Payloads again as `record` was told. A rank that is busy is asked again, for a supervisor lives as long as the
    job; a command ends, and the rank puts it back itself then."""
    if not _is_window_back(folder, config, holder):
        with suppress(RuntimeError):  # no thread can be had
            Thread(
                target=_window_back_later, args=(folder, config, holder), name="prismdbg-window", daemon=True
            ).start()


def _window_back_later(folder: Path, config: RankConfig, holder: Mapping[str, Any]) -> None:
    with suppress(PrismError, OSError):  # RUN is out of reach, say
        while still_runs(read_json(folder / "rank.json")) and not _is_window_back(folder, config, holder):
            time.sleep(AGAIN_S)


def _is_window_back(folder: Path, config: RankConfig, holder: Mapping[str, Any]) -> bool:
    try:
        with agent_of(folder, bound_s=LEASE_S) as agent:
            agent.ask("window", **_given_back(config, holder))
    except AgentError:  # asked again, it would say the same
        return True
    except (RankLost, WaitTimeout, UsageError):  # it has ended, or accepts no client or is busy
        return False
    return True


def _given_back(config: RankConfig, holder: Mapping[str, Any]) -> dict[str, Any]:
    on, steps, size_bytes = config.payload_window
    return {"back": True, "on": on, "steps": steps, "size_bytes": size_bytes, **holder}
