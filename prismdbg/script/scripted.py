"""One scripted replay from beginning to end: the rank brought to life, the script carried out, the ending judged."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.coverage import capsule_span
from prismdbg.capsule.log.events import RankLog
from prismdbg.debugger.debugger import Debugger, Settings, debug
from prismdbg.debugger.driver import RUNNING
from prismdbg.debugger.known_names import known_before_start
from prismdbg.debugger.time_travel import Travel, open_travel
from prismdbg.errors import PrismError, UsageError, WaitTimeout
from prismdbg.jobs.replay import compare
from prismdbg.jobs.replay.bounded_messages import Received
from prismdbg.jobs.replay.compare import Verdict, judge
from prismdbg.jobs.replay.replay import ReplayRequest, Say
from prismdbg.jobs.replay.verdict import End, Outcome
from prismdbg.log.rank_log import read_log
from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.model.deadline import Deadline
from prismdbg.model.meanwhile import Tell, working
from prismdbg.model.moment import Moment
from prismdbg.script.breakpoints import forbidding, spec_of
from prismdbg.script.findings import Ending, Findings
from prismdbg.script.fix import FixVerdict, Judgement, Run, judge_fix
from prismdbg.script.language import Assume, Script
from prismdbg.script.nonfinite_seen import NonfiniteSeen
from prismdbg.script.rank import LONGER, DebuggedRank, refuse_outside
from prismdbg.script.runner import Runner
from prismdbg.session import notices
from prismdbg.session.breakpoint_check import check, check_value, doubt
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg.session.known import NOTHING, Known
from prismdbg.session.notices import Notice

END_BOUND_S = 10.0
_NOWHERE = Moment(0)
_ON_THE_WAY = (
    notices.AllCompared,
    notices.Departed,
    notices.ProgramRaised,
    notices.StateCompared,
    notices.Synthesized,
)


def _unheeded(_: notices.Progress) -> None:
    """Before the rank runs there is none."""


@dataclass(slots=True)
class Listener:
    """What the rank tells while the script runs. `came_to`: the last moment of which it told, for a rank that dies says
    no other. `assumed_from`: the first answer of which it told after it left the record. `died_with`: how the process
    of a lost rank ended. `nan_stop`: the number of the stop that notes each NaN. `hangs`: again, as recorded."""

    received: Received
    verdict: Verdict = field(default_factory=Verdict)
    departed: notices.Departed | None = None
    assumed_from: Moment | None = None
    raised: notices.ProgramRaised | None = None
    nonfinite: NonfiniteSeen = field(default_factory=lambda: NonfiniteSeen(_NOWHERE, _NOWHERE))
    exit_code: int | None = None
    died_with: int | None = None
    came_to: Moment = _NOWHERE
    nan_stop: int = 0
    hangs: bool = False
    runner: Runner | None = None
    on_the_way: Callable[[notices.Progress], None] = _unheeded

    def __call__(self, notice: Notice) -> None:
        verdict = self.verdict
        if isinstance(notice, _ON_THE_WAY):
            self.came_to = max(self.came_to, notice.moment)
        match notice:
            case notices.Departed():
                self.departed = self.departed or notice
                if notice.story.get("assumed"):  # of that answer nothing else is told
                    self.assumed_from = self.assumed_from or notice.moment
            case notices.Diverged():
                self._ends(End.DIFFERED)
                verdict.story = notice.story
            case notices.ProgramRaised():
                self.raised = notice
                raised = {"type": notice.kind, "text": notice.text, "traceback": list(notice.traceback)}
                verdict.take({**raised, "thread": notice.in_thread})
            case notices.Synthesized():
                if self.departed is not None:
                    self.assumed_from = self.assumed_from or notice.moment
                told = {"moment": str(notice.moment), "collective": notice.collective}
                verdict.take_synthesized(told, self.received)
            case notices.AllCompared():
                verdict.is_covered, verdict.tally = True, notice.tally
            case notices.StateCompared():
                state = {"moment": str(notice.moment), "equal": notice.equal}
                verdict.take_state({**state, "expected": notice.expected, "actual": notice.actual})
            case notices.EndOfLog():
                if self._ends(End.NEXT_CALL):
                    verdict.tally, verdict.went_on_to = notice.tally, str(notice.moment)
            case notices.Finished():
                self.exit_code = notice.code
                if self._ends(End.FINISHED):
                    verdict.tally, verdict.exit_code = notice.tally, notice.code
            case notices.HangsAgain():
                if self._ends(End.SILENT):
                    verdict.tally, verdict.is_covered = notice.tally, True
                self.hangs = True
            case notices.Hit() if notice.stop == self.nan_stop:
                self.nonfinite.hit(notice.moment, self.departed.moment if self.departed is not None else None)
            case notices.Skipped():
                self.nonfinite.skipped(notice.moment.step, notice.begun, notice.in_a_row)
            case notices.BreakpointFailed() if self.runner is not None:
                self.runner.condition_failed(notice.stop, notice.moment, notice.error)
            case notices.Said():
                verdict.said.add(notice.text)
            case notices.Progress():
                self.on_the_way(notice)

    def _ends(self, end: End) -> bool:
        """The first of them is how the replay ended: what follows is synthesized, or a way back."""
        if self.verdict.end is not End.NOT_RUN:
            return False
        self.verdict.end = end
        return True


@dataclass(slots=True, kw_only=True)
class Scripted:
    """`verdict`: against the record, where the rank was to keep to it; `fix`: of an edited program or other peers."""

    findings: Findings = field(default_factory=Findings)
    verdict: Verdict | None = None
    fix: FixVerdict | None = None
    runtime: str = ""
    output: str = ""
    elapsed_s: float = 0.0


def check_span(script: Script, capsule: Capsule) -> None:
    """`UsageError` points at the first moment that the capsule does not span."""
    manifest = capsule.manifest
    for when in [*(entry.at for entry in script.expect), *(entry.at for entry in script.record)]:
        if when.moment is not None and when.place is not None:
            last = script.run_to or manifest.moment_b
            when.place.guard(refuse_outside, when.moment, manifest.moment_a, last)
    if script.run_to is not None:
        script.place.guard(refuse_outside, script.run_to, manifest.moment_a, script.run_to)


def check_names(script: Script, known: Known) -> None:
    """`UsageError` points at the first entry that can never be: a stop, a thing forbidden or a value with a name that
    nobody has."""
    for stop in script.stop_at:
        stop.place.guard(_check_stop, spec_of(stop), known)
    for forbidden in script.forbid:
        forbidden.place.guard(check, forbidding(forbidden), known)
    for expected in script.expect:
        expected.place.guard(check_value, expected.that, known)
    for record in script.record:
        record.place.guard(check_value, record.value, known)


def _check_stop(spec: BreakpointSpec, known: Known) -> None:
    check(spec, known)
    if text := doubt(spec, known):
        raise UsageError(text)


def run_scripted(request: ReplayRequest, script: Script, result: Scripted, *, bound_s: float, say: Say) -> None:
    """Fills `result` as it goes on; an error that ends it leaves there what was found before."""
    began = time.monotonic()
    check_span(script, request.capsule)
    free = request.may_depart or bool(script.peers)  # then what the record knows may not be all that there will be
    check_names(script, NOTHING if free else known_before_start(request.capsule))
    peers = tuple(_to_json(assumed) for assumed in script.peers)
    deadline = Deadline.after(bound_s)
    if script.time_limit.value <= bound_s:
        deadline = replace(deadline, hint=LONGER)
    request = replace(request, peers=peers, deadline=deadline)
    try:
        with open_travel(request, say) as travel:
            result.runtime = travel.runtime
            try:
                _carry_out(travel, request, script, result, began + bound_s)
            finally:
                result.output = travel.output.text()
    except WaitTimeout:
        if result.findings.ending is Ending.NOT_STARTED and not request.deadline.left_s():
            result.findings.ending = Ending.TIMEOUT
        raise
    finally:
        result.elapsed_s = time.monotonic() - began


def _carry_out(travel: Travel, request: ReplayRequest, script: Script, result: Scripted, deadline_s: float) -> None:
    manifest = request.capsule.manifest
    log = read_log(request.capsule.log) if request.may_depart else None
    bad = (
        [call.moment for call in log.collectives if call.sent_nonfinite or call.received_nonfinite]
        if log is not None
        else ()
    )
    nonfinite = NonfiniteSeen.of(manifest.incident, manifest.moment_b, bad)
    listener = Listener(Received(travel.capsule.log), nonfinite=nonfinite)
    debugger = debug(
        travel,
        listener,
        settings=Settings(checkpoints=False, bound_s=max(deadline_s - time.monotonic(), 1.0) + 60.0),
        how_it_ended=lambda: _how_it_ended(travel, listener),
    )
    recorded = debugger.session.recorded
    listener.nan_stop = debugger.session.breakpoints.add(BreakpointSpec(kind=BreakpointKind.NAN, log_only=True)).number
    capsule = request.capsule
    rank, end, affected = DebuggedRank(debugger, deadline_s), capsule.manifest.moment_b, _Affected(debugger, listener)
    listener.runner = Runner(rank, script, end, result.findings, affected.look)
    try:
        with working() as tell:
            listener.on_the_way = _Telling(recorded, script.run_to or end, tell)
            listener.runner.run()
    finally:
        affected.look()
        debugger.end()
    _judge(capsule, script, result, listener, recorded, affected.moment, log)
    if not _is_as_hoped(result):
        died = result.findings.ending is Ending.LOST or listener.verdict.end is End.DIED
        has_ended = died or listener.exit_code is not None
        travel.running.require_no_limit_met(ends=has_ended)


def _is_as_hoped(result: Scripted) -> bool:
    """What is not may be the doing of a limit of the replay, and so may any death."""
    if result.verdict is not None and result.verdict.end is End.DIED:
        return False
    outcome = Outcome.IDENTICAL if result.verdict is None else result.verdict.outcome
    judgement = Judgement.GONE if result.fix is None else result.fix.judgement
    is_complete = result.findings.ending is Ending.COMPLETE and not result.findings.failed
    return is_complete and outcome is Outcome.IDENTICAL and judgement in (Judgement.GONE, Judgement.NO_INCIDENT)


def _judge(
    capsule: Capsule,
    script: Script,
    result: Scripted,
    listener: Listener,
    recorded: tuple[Moment, ...],
    affected: Moment | None,
    log: RankLog | None,
) -> None:
    """`log`: of the capsule, where the rank may leave the record."""
    findings, manifest = result.findings, capsule.manifest
    reached = findings.reached or manifest.moment_a
    if findings.ending is Ending.LOST:
        findings.reached = reached = max(reached, listener.came_to)
        affected = affected or listener.assumed_from  # what it knew of that itself is lost, too
    verdict = listener.verdict
    verdict.moment = str(min(reached, manifest.moment_b))
    seen = Run(
        ending=findings.ending,
        reached=reached,
        departed=listener.departed,
        affected=affected,
        first_nan=listener.nonfinite.first,
        lasting_overflow=listener.nonfinite.lasting(reached),
        skipped_too_many=listener.nonfinite.is_too_many,
        has_other_nan=listener.nonfinite.has_passed,
        has_nan_where_it_left=listener.nonfinite.is_where_it_left,
        raised=listener.raised,
        run_to=script.run_to,
        hangs=listener.hangs,
        exit_code=listener.died_with if findings.ending is Ending.LOST else listener.exit_code,
    )
    if log is not None:
        known = compare.recorded(capsule, log, capsule_span(capsule, log))
        result.fix = judge_fix(seen, manifest.incident, manifest.moment_b, recorded, known)
        return
    if findings.ending in (Ending.TIMEOUT, Ending.BROKEN):
        return
    if verdict.end is End.NOT_RUN:
        if findings.ending is Ending.LOST and verdict.exit_code is None:  # nobody saw that its process ended
            return
        verdict.end = End.DIED if findings.ending is Ending.LOST else End.UNTIL
    judge(capsule, verdict)
    result.verdict = verdict
    if verdict.outcome is Outcome.DIVERGED:
        findings.ending = Ending.DIVERGED
    elif verdict.outcome is Outcome.INCONCLUSIVE:
        findings.ending, findings.cut_short = Ending.INCONCLUSIVE, verdict.why
    elif verdict.outcome is Outcome.IDENTICAL and findings.ending is Ending.LOST and verdict.end is End.DIED:
        # it died where the recorded one did; a rank that is lost on the way back, or beyond the end, did not
        findings.ending, findings.cut_short = Ending.COMPLETE, ""
        findings.close()


class _Telling:
    """How far the replay is, of the recorded collectives up to `end`; of a search, what is searched for, too."""

    def __init__(self, recorded: tuple[Moment, ...], end: Moment, tell: Tell) -> None:
        self._recorded = [moment for moment in recorded if moment <= end]
        self._tell = tell

    def __call__(self, progress: notices.Progress) -> None:
        what = "replaying" if progress.text == RUNNING else progress.text
        what += progress.which_pass
        done = bisect_right(self._recorded, progress.moment)
        self._tell(f"{what}: collective {done:,} of {len(self._recorded):,}, at {progress.moment}")


class _Affected:
    """Where the first answer came that was not the recorded one; looked for once, before the rank goes back."""

    def __init__(self, debugger: Debugger, listener: Listener) -> None:
        self._debugger = debugger
        self._listener = listener
        self._looked = False
        self.moment: Moment | None = None

    def look(self) -> None:
        """From the rank while it stands, else as it said at its end."""
        if self._looked:
            return
        self._looked = True
        try:
            tally: dict[str, Any] = self._debugger.tally()
        except PrismError:
            tally = self._listener.verdict.tally
        if self._listener.verdict.end is End.NOT_RUN:
            self._listener.verdict.tally = tally
        text = tally.get("affected")
        self.moment = Moment.parse(text) if text else None


def _how_it_ended(travel: Travel, listener: Listener) -> str:
    try:
        listener.died_with = travel.running.wait(END_BOUND_S)
    except PrismError as error:
        return str(error)
    if listener.verdict.end is End.NOT_RUN:  # else the replay was over before, and has its own
        listener.verdict.exit_code = listener.died_with
    return f"its process ended with {listener.died_with}"


def _to_json(assumed: Assume) -> dict[str, Any]:
    return {
        "since": str(assumed.since),
        "until": str(assumed.until) if assumed.until is not None else None,
        "ranks": [rank.value for rank in assumed.ranks],
        "group": assumed.group,
        "answer": str(assumed.answer or ""),
        "seed": assumed.seed.value,
        "late_s": assumed.late.value if assumed.late is not None else 0.0,
        "missing": assumed.missing,
    }
