"""Puts a captured rank back to life among virtual peers, ready for a client: a replay, a debugger, a script."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.files import Place, changed, read_files
from prismdbg.capsule.log.coverage import capsule_span
from prismdbg.capsule.manifest import Origin
from prismdbg.capsule.secrets.masking import (
    REDACTED,
)
from prismdbg.errors import FacilityError, RankLost, WaitTimeout
from prismdbg.jobs.replay.replay_plan import Plan, ReplayRequest, make_plan
from prismdbg.jobs.replay.runtimes import choose, uses_gpu
from prismdbg.jobs.replay.session_folder import session_folder
from prismdbg.jobs.storage.verify import require_replayable
from prismdbg.log.rank_log import read_log
from prismdbg.model import user_code
from prismdbg.model.deadline import NEVER, Deadline
from prismdbg.protocol.client import AgentClient, connect_when_ready
from prismdbg.runtime.names import LOCAL, PLAIN
from prismdbg.runtime.rank_folder import Output, RankFolder
from prismdbg.runtime.runtime import RunningRank, Runtime, fact_and_advice
from prismdbg.runtime.spec import RANK, ImageOrigin
from prismdbg.session.causes import ALL_HIDDEN, Unhidden, not_hidden

__all__ = ["LiveReplay", "ReplayRequest", "Say", "open_replay"]

AGENT_BOUND_S = 90.0
START_BOUND_S = 900.0  # of a program, without a deadline: building a large model, for instance
CHANGE_OVER_BOUND_S = 60.0
STARTER_MARGIN_S = 60.0  # the command ends a replay at its deadline; the starter only if the command cannot
LAST_WORDS, LAST_BYTES = 12, 64 << 10  # lines, and where they are looked for
_BEGINNING = {
    Origin.IMAGE: "restoring the checkpoint",
    Origin.START: "starting the program",
    Origin.STATE: "starting the program, which loads the state snapshot at its restore point",
}
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReplay:
    """A rank that waits at A for its first `resume`."""

    capsule: Capsule
    client: AgentClient
    running: RunningRank
    runtime: str
    own: RankFolder
    first_record: int
    end_record: int
    unhidden: Unhidden

    @property
    def output(self) -> Output:
        return self.own.output


@contextmanager
def open_replay(request: ReplayRequest, say: Say) -> Iterator[LiveReplay]:
    """Everything that is made for the replay is removed at the end, however it ends."""
    capsule = require_replayable(request.capsule)
    request = replace(request, capsule=capsule)
    say_missing(request, say)
    with session_folder() as session, RankFolder(session / RANK) as own:
        runtime = choose(request.runtime, capsule.manifest.origin, request.allow_writes, on_gpu=uses_gpu(capsule))
        plan = make_plan(request, session, own)
        seen = unhidden(runtime, plan, capsule)
        running = start(runtime, plan, capsule, say, request.deadline, seen)
        try:
            with connect(plan, running, request.deadline) as client:
                yield LiveReplay(
                    capsule=capsule,
                    client=client,
                    running=running,
                    runtime=runtime.name,
                    own=own,
                    first_record=take_over(client, request),
                    end_record=last_record(capsule),
                    unhidden=seen,
                )
        finally:
            running.kill()


def start(runtime: Runtime, plan: Plan, capsule: Capsule, say: Say, deadline: Deadline, seen: Unhidden) -> RunningRank:
    """`seen`: what the runtime does not hide."""
    if reason := runtime.refuses(plan.spec):
        fact, advice = fact_and_advice(reason)
        raise FacilityError(fact, hint=advice)
    for text in filter(None, (redacted_arguments(capsule), *not_hidden(seen))):
        say(text)
    say(f"{runtime.name}: {_BEGINNING[capsule.manifest.origin]}")  # last: a screen shows it while it lasts
    longest_s = deadline.bound_s + STARTER_MARGIN_S
    return runtime.start(replace(plan.spec, deadline=deadline, longest_s=longest_s), say)


def unhidden(runtime: Runtime, plan: Plan, capsule: Capsule) -> Unhidden:
    """What of this machine the rank may see although it is younger than its start; a container shows nothing of it, a
    plain process all, in place of the capsule's own files."""
    if runtime.name != PLAIN:
        return plan.unhidden if runtime.name == LOCAL else ALL_HIDDEN
    inside = (file for file in read_files(capsule) if file.place is Place.INSIDE)
    return plan.unhidden._replace(
        younger=tuple(path for path in plan.spec.absent if os.path.lexists(path)),
        differing=tuple(reason for file in inside if (reason := changed(file))),
    )


def redacted_arguments(capsule: Capsule) -> str:
    """What a program that is started again does not get; a restored one still knows it."""
    names = ", ".join(capsule.rank().get("redacted_arguments", ()))
    if not names or capsule.manifest.origin is Origin.IMAGE:
        return ""
    return f"not in this capsule, because they may be secrets: the values of {names}; the program gets {REDACTED!r}"


def say_missing(request: ReplayRequest, say: Say) -> None:
    """Files of credentials that the capsule lacks, and how to bring them."""
    if missing := request.missing_files:
        say(
            f"not in this capsule, because they contain credentials: {', '.join(missing)}; "
            "a program that opens one fails, unless --with-file PATH provides yours"
        )


def connect(plan: Plan, running: RunningRank, deadline: Deadline = NEVER) -> AgentClient:
    try:
        return connect_when_ready(
            plan.own.path / plan.agent,
            bound_s=deadline.left_s(_most_s(plan, deadline)),
            still_alive=lambda: running.exit_code() is None,
            reach=lambda: plan.own.reach(plan.agent),
        )
    except WaitTimeout as error:
        raise _late(error, plan, deadline) from None
    except RankLost as error:
        running.require_within_limits()
        what = "the program ended before its state was restored" if plan.awaits_restore_point else str(error)
        raise RankLost(
            f"{what}, with exit code {running.exit_code()}; {_last_words(plan.own.output)}",
            hint="run `prismdbg verify` to check the capsule, and `prismdbg doctor` to check this machine",
        ) from None


def _most_s(plan: Plan, deadline: Deadline) -> float:
    """Seconds to wait for the agent. An image is read for as long as its size takes. A program may compile and build
    first, for as long as `--timeout` allows, else `START_BOUND_S`."""
    if isinstance(plan.spec.origin, ImageOrigin):
        return max(AGENT_BOUND_S, plan.spec.origin.timeout_s)  # it answers once it is restored
    return START_BOUND_S if deadline == NEVER else deadline.bound_s


def _late(error: WaitTimeout, plan: Plan, deadline: Deadline) -> WaitTimeout:
    """The same, or that the whole time is up, with what the rank printed."""
    try:
        deadline.require(f"the start of {plan.spec.name}")
    except WaitTimeout as over:
        error = over
    return WaitTimeout(f"{error}; {_last_words(plan.own.output)}", hint=error.hint)


def _last_words(output: Output) -> str:
    """What the rank printed at last: its folder is gone when this is read."""
    lines = output.newest(LAST_BYTES).decode("utf-8", "replace").splitlines()
    said = [line for line in lines if line.strip()][-LAST_WORDS:]
    return "its last output:\n" + "\n".join(said) if said else "it printed nothing"


def take_over(client: AgentClient, request: ReplayRequest) -> int:
    """A rank that stands at A is told how it is replayed: a restored one changes over to virtual peers, one that may
    leave the record learns so. The number of the first record to come."""
    first = _change_over(client, request)
    if request.may_depart:
        client.ask("depart", peers=list(request.peers))
    return first


def _change_over(client: AgentClient, request: ReplayRequest) -> int:
    capsule = request.capsule
    if capsule.manifest.origin is Origin.STATE:
        return int(capsule.rank().get("past_records", 0))
    if capsule.manifest.origin is Origin.START:
        return 0
    in_flight = capsule.rank().get("in_flight", [])
    missing = list(request.missing_files)
    taken = client.ask(
        "replay",
        log=str(capsule.log),
        in_flight=in_flight,
        redacted_files=missing,
        user_code=list(user_code.paths()),
        timeout_s=CHANGE_OVER_BOUND_S,
    )
    return min([*in_flight, int(taken["record_id"])])


def last_record(capsule: Capsule) -> int:
    """The end moment as a record number: the last collective up to it."""
    return capsule_span(capsule, read_log(capsule.log)).end_record
