"""The job's parent on its node: follows every rank's log and does what a thread in a rank cannot.

Nothing here may end or hold the job: whatever fails is said, kept in `supervisor.json`, and the watch goes on. What
looks at RUN is a thread, for a file server may hold it; the main one forwards signals and waits for the job alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from types import FrameType
from typing import Any

from prismdbg.capsule.log.events import Event, Note, StepMark
from prismdbg.capsule.log.follower import LogFollower
from prismdbg.capsule.log.notes import NO_STATE
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.capsule.stacks import HangPlace, JobStacks
from prismdbg.diagnosis.hang import HangReport
from prismdbg.diagnosis.wording import how_it_died
from prismdbg.errors import NotReplayable, PrismError
from prismdbg.jobs.capture.capture import HUNG, PATIENT, CaptureRequest, Say, capture
from prismdbg.jobs.capture.states import remove_unfinished
from prismdbg.jobs.record.checkpoint_rounds import CheckpointRounds
from prismdbg.jobs.record.deaths import ASKED, Death, DeathWatch, likely_first, perhaps_first
from prismdbg.jobs.record.ended_attempts import EndedAttempts
from prismdbg.jobs.record.file_system_timeout import why_unfinished
from prismdbg.jobs.record.freeze import freeze, has_past, wanted_now
from prismdbg.jobs.record.hangs import HangWatch
from prismdbg.jobs.record.incident_command import IncidentCommand
from prismdbg.jobs.record.incidents import IncidentWatch, Wanted
from prismdbg.jobs.record.interruption import TOGETHER_NS, told_since, told_together
from prismdbg.jobs.record.ledger import Entry, Ledger
from prismdbg.jobs.record.log_retention import LogRetention
from prismdbg.jobs.record.nodes.among_nodes import AmongNodes, OnlyNode
from prismdbg.jobs.record.nodes.membership import Member
from prismdbg.jobs.record.snapshot_hold import SnapshotHold
from prismdbg.jobs.record.stacks import take_stacks
from prismdbg.jobs.record.steady_clock import by_log, monotonic_of, wall_ns
from prismdbg.jobs.record.telemetry_sampler import TelemetrySampler
from prismdbg.jobs.storage.peak import Peaks
from prismdbg.jobs.storage.ranks_alive import RankProcess, was_replaced
from prismdbg.jobs.storage.run_environment import environment_of
from prismdbg.jobs.storage.run_folder import RunFolder, attempt_of, rank_of
from prismdbg.log.summary import summarize
from prismdbg.model.exit_code import as_shell
from prismdbg.settings.state_hold import LONGEST_S

POLL_S = 0.2
POLL_NS = int(POLL_S * 1e9)
MOST_LAST_LOOKS = 300  # a minute of waiting, without what captures take; more than nodes need to agree or to fail
PEAKS_NS = 1_000_000_000  # the kernel takes longer to tell of a process's memory than all else does
WINDOW_BOUND_S = 60.0  # of a capture after a signal: nothing else is watched meanwhile
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
OF_TERMINALS = (signal.SIGINT, signal.SIGQUIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What makes an incident and what is kept for it. `keep`: capsules made by incidents, at most. `log_bytes`: of each
    rank's log, older events go; 0: all of it is kept. telemetry_ns: between two readings of the sensors; 0: none.
    on_incident: a shell command that is told of each incident."""

    triggers: dict[str, str] = field(default_factory=dict)
    checkpoint_every: int = 0
    keep: int = 4
    log_bytes: int = 0
    telemetry_ns: int = 0
    on_incident: str = ""


class _NotWaitedFor(BaseException):
    """Somebody asked to end while what the job left was still being written."""


class Supervisor:
    """`watch` returns the job's exit code."""

    def __init__(
        self, run: RunFolder, policy: Policy, job: subprocess.Popen[bytes], say: Say, member: Member | None = None
    ) -> None:
        """`member`: where it is not the only supervisor of the job."""
        self._run = run
        self._policy = policy
        self._job = job
        self._say = say
        self._folders: list[Path] = []  # of ranks, at this look
        self._readers: dict[str, LogFollower] = {}
        self._processes: dict[str, RankProcess] = {}
        self._peaks = Peaks()
        self._saw_peaks_ns = 0
        self._read_ns = 0
        self._deaths = DeathWatch()
        self._deaths_seen = 0
        self._deaths_cleared = 0
        self._decided: dict[int, int] = {}  # attempts that are over, and how many of their ranks had died then
        self._reported_dead: set[str] = set()  # by name of the log folder
        self._incidents = IncidentWatch(policy.triggers)
        self._hangs = HangWatch(policy.triggers.get("hang", ""))
        self._attempts = EndedAttempts(run, policy.log_bytes)
        self._summarized: dict[str, int] = {}  # the segment that was written to when a log was summarized
        self._asked_by_signal = False
        self._needs_since_s: float | None = None
        self._told_to_end = Flag()
        self._interrupted: dict[str, int] = {}
        self._is_noted = False  # that the job was told to end
        self._ended = Flag()
        self._ended_wall_ns = 0
        self._only_writes = False  # the job has ended
        self._nodes = OnlyNode(run) if member is None else AmongNodes(member, lambda text: self._ledger.problem(text))
        self._ledger = Ledger(self._nodes.supervisor_json, job.pid, policy.keep, say, self._nodes.made_elsewhere)
        self._snapshots = SnapshotHold(run, self._nodes.name, self._ledger.problem)
        self._retention = LogRetention(run, policy.log_bytes, self._ledger, say)
        self._checkpoints = CheckpointRounds(run, policy.checkpoint_every, self._ledger, say, self._nodes.holding)
        self._telemetry = TelemetrySampler(run.telemetry / self._nodes.name, policy.telemetry_ns, self._ledger.problem)
        self._on_incident = IncidentCommand(policy.on_incident, run.path, self._ledger.problem)

    def watch(self, finish: Callable[[], None]) -> int:
        """`finish`: what is to be done in RUN when the job has ended and all of it is seen."""
        for number in FORWARDED:
            # With nohup, say: a job that still ignores it goes on, and is watched.
            is_ignored = signal.getsignal(number) is signal.SIG_IGN
            signal.signal(number, self._pass_on if is_ignored else self._forward)
        signal.signal(signal.SIGUSR2, self._pass_on)  # that a scheduler gives before the time is up, say
        signal.signal(signal.SIGUSR1, self._on_signal)
        follower = Thread(target=self._follow, args=(finish,), name="prismdbg-supervisor", daemon=True)
        try:
            Thread(target=self._note_interruption, name="prismdbg-interrupted", daemon=True).start()
            self._deaths.begin()
            follower.start()
        except RuntimeError as error:
            self._say(f"incidents of the job are not detected, and no capsule is created: {error}; the job continues")
            return as_shell(self._job.wait())
        code = self._job.wait()
        self._ended_wall_ns = wall_ns()  # before the last look, which may take long
        self._ended.set()
        try:
            self._only_writes = True
            if why := why_unfinished(follower, self._run.path, self._say_it_writes):
                self._say(f"{self._run.path} {why}: {self._not_written()}")
            self._only_writes = False
        except _NotWaitedFor:
            self._say(f"interrupted: the last events of the job may be missing in {self._run.path}")
        self._on_incident.end()
        return as_shell(code)

    def _not_written(self) -> str:
        if left := self._nodes.left_in:
            return f"the logs of this node stay in {left}: run `prismdbg publish {self._run.path}` here when it answers"
        return "the end of the job and the last events are not written there"

    def _say_it_writes(self) -> None:
        if sys.stderr.isatty():  # a log of the job is as it was
            self._say(f"the job has ended; writing its last events into {self._run.path} (Ctrl-C skips this)")

    def _follow(self, finish: Callable[[], None]) -> None:
        self._ledger.save()
        self._guarded(self._telemetry.start)
        ended = False
        while not ended:
            ended = self._ended.wait(POLL_S)
            self._guarded(lambda ended=ended: self._look(ended))  # type: ignore[misc]
        self._guarded(self._telemetry.stop)
        self._decide_the_last()
        self._snapshots.set(on=False)
        self._guarded(self._nodes.publish)
        self._ledger.note(
            exit_code=self._job.returncode,
            ended_wall_ns=self._by_log(self._ended_wall_ns),
            deaths=self._deaths.order(),
            how_they_died=[self._death_json(death) for death in self._deaths.deaths()],
            interrupted=self._told_json(),
        )
        self._guarded(finish)
        self._guarded(self._on_incident.finish)

    def _decide_the_last(self) -> None:
        """Incidents that are decided among nodes, and that they were captured. Whatever keeps them from it, the
        supervisor ends."""
        for _ in range(MOST_LAST_LOOKS):
            if not (self._nodes.has_to_decide or self._nodes.has_to_tell):
                return
            self._guarded(self._nodes.settle_at_the_end)
            time.sleep(POLL_S)
        while self._nodes.has_to_decide:
            self._guarded(self._nodes.decide_alone)

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        """Ctrl-C at a terminal reaches the job by itself; twice would make launchers give up cleaning up.

        How ranks end from here on is no incident. Once the job has ended, nobody is made to wait for the rest.
        """
        if self._only_writes:
            raise _NotWaitedFor
        if not self._told_to_end.is_set():
            self._interrupted = {"signal": number, "wall_ns": wall_ns()}
        self._told_to_end.set()
        self._pass_on(number, _frame)

    def _note_interruption(self) -> None:
        """At once, for whoever asks why the job ends: the follower may be making a capsule, which takes its time."""
        self._told_to_end.wait()
        self._note_told()

    def _note_told(self) -> None:
        self._guarded(lambda: self._nodes.note_told(monotonic_of(self._interrupted["wall_ns"])))
        self._guarded(lambda: self._ledger.note(interrupted=self._told_json()))

    def _told_json(self) -> dict[str, int]:
        told = self._interrupted
        return {**told, "wall_ns": self._by_log(told["wall_ns"])} if told else {}

    def _death_json(self, death: Death) -> dict[str, Any]:
        seen = {"wall_ns": death.wall_ns, "alive_wall_ns": death.alive_wall_ns}
        return death.to_json() | {key: self._by_log(ns) if ns else 0 for key, ns in seen.items()}

    def _by_log(self, wall_ns: int) -> int:
        """A time of ours by the clock of the logs: whoever reads the report compares it with what is there."""
        return by_log(wall_ns, self._log_offset_ns)

    @property
    def _log_offset_ns(self) -> int | None:
        """Of a log of the latest attempt that has our clock; None where none has been read. One for all, which keeps
        their order."""
        processes = list(self._processes.items())  # a thread may add one
        ours = (self._readers.get(name) for name, process in processes if process.has_our_clock)
        readers = [reader for reader in ours if reader is not None and reader.wall_offset_ns]
        latest = max(readers, key=lambda reader: attempt_of(reader.folder.name), default=None)
        return latest.wall_offset_ns if latest is not None else None

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        if number in OF_TERMINALS and _terminal_signals_us():
            return
        try:
            self._job.send_signal(number)
        except OSError as error:  # it is another user's, by sudo say: the wait for its end goes on
            name = signal.Signals(number).name
            self._say(f"{name} cannot be passed on to the job: {error.strerror}")

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._asked_by_signal = True

    def _guarded(self, action: Callable[[], None]) -> None:
        """The supervisor outlives its own mistakes: the job's exit code must still be told."""
        try:
            action()
        except Exception as error:
            self._failed(error)

    def _found(self, ask: Callable[[], list[Wanted]]) -> list[Wanted]:
        """What `ask` finds; nothing where it fails."""
        try:
            return ask()
        except Exception as error:
            self._failed(error)
        return []

    def _failed(self, error: Exception) -> None:
        known = str(error) if isinstance(error, PrismError) else f"the supervisor failed: {error!r}"
        self._ledger.problem(_why_lost(self._run.path) or known)

    def _look(self, ended: bool) -> None:
        """What the events say is judged at the time before they were read: a capsule may take a minute to make, and by
        then they say nothing of who still waits. A step that fails keeps no other from being taken: a file of one rank
        that cannot be read hides no incident of another."""
        now_ns = time.monotonic_ns()
        self._guarded(lambda: self._find_folders(ended))
        self._read_events(now_ns)
        for over in self._incidents.newly_over():
            self._nodes.note_over(over)
        self._guarded(self._hold_snapshots)
        if ended or now_ns - self._saw_peaks_ns >= PEAKS_NS:
            self._saw_peaks_ns = now_ns
            self._guarded(self._look_at_peaks)
            if not ended:
                self._guarded(lambda: self._retention.estimate_span(self._folders))
        self._guarded(self._keep_logs_short)
        self._guarded(self._on_incident.look)
        self._find_processes()
        lost = self._found(self._lost_ranks)
        self._guarded(self._clear_after_deaths)
        if self._told_to_end.is_set():
            if not self._is_noted:
                self._is_noted = True  # before supervisors of other nodes decide about what follows
                self._note_told()
                due = self._found(lambda: self._incidents.due_at_the_end(now_ns, self._ends_since_ns()))
                self._act_on_each([*lost, *due])
            return
        self._act_on_each([*lost, *self._found(lambda: self._incidents.due(now_ns, ended))])
        self._guarded(self._nodes.settle)
        self._guarded(lambda: self._nodes.look(self._processes, lambda: self._hangs.delays(now_ns, self._pids())))
        if not ended:
            self._guarded(lambda: self._look_for_hang(now_ns))
            self._guarded(self._capture_on_signal)
            self._guarded(self._take_checkpoints)
            self._guarded(self._reduce_ended_attempts)

    def _find_folders(self, ended: bool) -> None:
        self._folders = self._nodes.own(at_once=ended)

    def _act_on_each(self, found: Sequence[Wanted]) -> None:
        for wanted in found:
            self._guarded(partial(self._act_on, wanted))

    def _read_events(self, now_ns: int) -> None:
        self._read_ns = now_ns
        for name, event in self._new_events():
            try:
                self._feed(name, event, now_ns)
            except Exception as error:
                self._failed(error)

    def _feed(self, name: str, event: Event, now_ns: int) -> None:
        self._nodes.feed(name, event)
        self._incidents.feed(name, event, now_ns)
        self._hangs.feed(name, event)
        if isinstance(event, StepMark):
            self._checkpoints.came_to(name, event.step)
        if isinstance(event, Note) and event.kind == NO_STATE:
            self._retention.no_more_states(name)

    def _hold_snapshots(self) -> None:
        """While something settles, is decided among nodes, or is captured, which is done before the next look."""
        self._snapshots.set(on=self._may_need_the_past() or (self._asked_by_signal and not self._is_noted))

    def _may_need_the_past(self) -> bool:
        """An incident that settles or is decided among nodes, for a bounded time: a decision may never come."""
        if self._is_noted or not (self._incidents.settling or self._nodes.has_to_decide):
            self._needs_since_s = None
            return False
        if self._needs_since_s is None:
            self._needs_since_s = time.monotonic()
        return time.monotonic() - self._needs_since_s < LONGEST_S

    def _ends_since_ns(self) -> int:
        """Of a job that was told to end, by CLOCK_MONOTONIC: how ranks end from then on is no incident."""
        deaths = (death for death in self._deaths.deaths() if death.name not in self._reported_dead)
        asked = [monotonic_of(death.wall_ns) for death in deaths if death.signal in ASKED]
        told_ns = monotonic_of(self._interrupted["wall_ns"])
        return told_since(told_ns, (*asked, *self._incidents.interrupted_ns))

    def _new_events(self) -> list[tuple[str, Event]]:
        events = []
        for folder in self._folders:
            reader = self._readers.setdefault(folder.name, LogFollower(folder))
            try:
                events += [(folder.name, event) for event in reader.poll()]
            except Exception as error:
                self._failed(error)
        return events

    def _find_processes(self) -> None:
        """Of ranks that have described themselves. One whose description cannot be read is looked at again."""
        for folder in self._folders:
            if folder.name not in self._processes:
                self._guarded(partial(self._find_process, folder))

    def _find_process(self, folder: Path) -> None:
        if not (folder / "rank.json").exists():
            return
        process = RankProcess(folder)
        if process.pid is None:
            self._ledger.problem(
                f"rank {folder.name} runs in another namespace or on another machine: its end cannot be noticed"
            )
        else:
            self._deaths.watch(folder.name, process.pid)
        self._processes[folder.name] = process
        self._telemetry.watch(folder.name, process.pid)
        if self._policy.checkpoint_every and len(self._processes) == 1:
            # while the rank is alive and shows what it has mapped; it takes seconds, so beside the watch
            Thread(target=environment_of, args=(self._run, folder), daemon=True).start()

    def _lost_ranks(self) -> list[Wanted]:
        """Of each attempt the first that did not end by itself, if it said nothing: launchers and lost peers end the
        others."""
        failed: dict[int, list[Death]] = {}  # by attempt
        all_deaths, now_ns = self._deaths.deaths(), wall_ns()
        self._deaths_seen = len(all_deaths)
        for death in all_deaths:
            self._hangs.died(death.name)
        undecided = self._undecided(all_deaths)
        deaths = [death for some in undecided.values() for death in some]
        before_ns = self._ends_since_ns() if self._told_to_end.is_set() else None
        for death in deaths:
            if before_ns is not None and monotonic_of(death.wall_ns) >= before_ns:
                continue
            if not self._processes[death.name].ended_by_itself():
                failed.setdefault(attempt_of(death.name), []).append(death)
        told = told_together(deaths, now_ns, self._deaths.ends(), lambda name: self._processes[name].has_failed())
        firsts = [(likely_first(some, self._raised(some)), perhaps_first(some)) for some in failed.values()]
        found = [
            wanted
            for death, perhaps in firsts
            if death.name not in told
            for wanted in self._died(death, is_first=death.signal is not None or len(perhaps) == 1)
        ]
        self._decided |= {attempt: len(some) for attempt, some in undecided.items() if self._is_over(some, now_ns)}
        return found

    def _undecided(self, deaths: Sequence[Death]) -> dict[int, list[Death]]:
        """By attempt; not of those that were looked at after all of their ranks had died: there may be hundreds."""
        found: dict[int, list[Death]] = {}
        for death in deaths:
            found.setdefault(attempt_of(death.name), []).append(death)
        return {attempt: some for attempt, some in found.items() if self._decided.get(attempt) != len(some)}

    def _is_over(self, deaths: list[Death], now_ns: int) -> bool:
        """Whether nothing that is seen later says anything else of these deaths of one attempt."""
        dead, attempt = {death.name for death in deaths}, attempt_of(deaths[0].name)
        others = (one for name, one in self._processes.items() if name not in dead and attempt_of(name) == attempt)
        has_settled = now_ns - max(death.wall_ns for death in deaths) > TOGETHER_NS
        return has_settled and all(process.is_out_of_sight for process in others)

    def _raised(self, deaths: list[Death]) -> dict[str, bool]:
        """Those of them that raised, and whether in a collective."""
        found = {death.name: self._processes[death.name].raised_in_collective() for death in deaths}
        return {name: inside for name, inside in found.items() if inside is not None}

    def _look_at_peaks(self) -> None:
        for folder in self._folders:
            process = self._processes.get(folder.name)
            if process is not None and process.pid is not None and process.is_alive():
                with contextlib.suppress(OSError):  # a full disk, or a run that is gone: the ledger says so
                    self._peaks.look(folder, process.pid)

    def _keep_logs_short(self) -> None:
        """Of each rank that has begun another segment, or that a capture held back. A log that cannot be summarized or
        shortened stays as it is, and so does one that an incident may need."""
        for folder in self._folders:
            follower = self._readers.get(folder.name)
            if follower is None:
                continue
            is_done = follower.segment == self._summarized.get(folder.name, 0)
            if is_done and folder.name not in self._retention.held_by_captures:
                continue
            if self._policy.log_bytes and self._may_need_the_past():
                return
            self._summarized[folder.name] = follower.segment
            try:
                summarize(folder)
                self._retention.shorten(folder)
            except (PrismError, OSError) as error:
                self._ledger.problem(f"the log of rank {folder.name} is not shortened: {error}")

    def _reduce_ended_attempts(self) -> None:
        if not self._has_else_to_do():
            self._attempts.reduce_one(self._folders, {death.name for death in self._deaths.deaths()})

    def _clear_after_deaths(self) -> None:
        if self._deaths_cleared < self._deaths_seen:
            self._deaths_cleared = self._deaths_seen
            remove_unfinished(self._run)

    def _died(self, death: Death, *, is_first: bool) -> list[Wanted]:
        """is_first: as far as one can tell; of those that were gone before they were first looked at, one cannot."""
        process = self._processes[death.name]
        if death.name in self._reported_dead:
            return []
        if not process.died_without_a_word() or was_replaced(self._run.ranks / death.name):
            return []
        if death.code == 0:  # nobody was killed: its log could not be written to the end
            self._ledger.problem(f"rank {death.name} ended with exit code 0, and its log has no end record")
            return []
        how = how_it_died(death.signal, death.code) + ("" if is_first else "; another rank may have died before it")
        time_ns = monotonic_of(death.wall_ns)
        found = self._incidents.lost(death.name, process.last_moment(), how, death.code, time_ns)
        self._reported_dead |= {wanted.folder for wanted in found}
        return found

    def _act_on(self, wanted: Wanted) -> None:
        inside = self._processes[wanted.folder].raised_in_collective() if wanted.folder in self._processes else None
        self._nodes.share(wanted, inside, self._make_capsule)

    def _make_capsule(self, wanted: Wanted) -> None:
        is_late = self._told_to_end.is_set() and wanted.time_ns >= self._ends_since_ns()
        if is_late and wanted.incident.kind is not IncidentKind.NAN:  # it was told while another one was made
            return
        with self._incident(wanted.incident, [wanted.folder]) as entry:
            self._freeze(entry, wanted)

    @contextlib.contextmanager
    def _incident(self, incident: Incident, folders: Sequence[str]) -> Iterator[Entry]:
        """It is told at once, and again when it was captured."""
        entry = self._ledger.incident(incident, folders)
        self._on_incident.tell("incident", entry)
        yield entry
        if entry["capsules"] or entry.get("evidence"):
            self._on_incident.tell("captured", entry)

    def _freeze(self, entry: Entry, wanted: Wanted) -> None:
        if not self._ledger.has_room():
            return
        self._snapshots.set(on=True)
        try:
            self._ledger.capsule(entry, freeze(self._run, wanted))
        except NotReplayable as error:
            self._ledger.evidence(entry, error)
        except PrismError as error:
            self._ledger.problem(str(error), error.hint)
        except OSError as error:
            self._ledger.problem(f"no capsule of rank {wanted.folder}: {error}")

    def _take_checkpoints(self) -> None:
        """None while an incident settles or a hang is near, for a checkpoint may drop what lies before it."""
        if not self._has_else_to_do():
            step_ns = self._incidents.median_step_ns()
            self._checkpoints.take(self._processes, self._hangs.patience, step_ns, self._reads_of_else_to_do)

    def _reads_of_else_to_do(self) -> bool:
        """Asked again and again while a rank is waited for that is to be checkpointed, and may never answer: events are
        read meanwhile, and no incident is seen later for it."""
        if (now_ns := time.monotonic_ns()) - self._read_ns >= POLL_NS:
            self._read_events(now_ns)
            return self._has_else_to_do()
        return self._is_asked

    def _has_else_to_do(self) -> bool:
        return (
            self._is_asked
            or self._nodes.has_to_decide
            or self._incidents.settling
            or self._hangs.suspects(time.monotonic_ns())
            or len(self._deaths.deaths()) > self._deaths_seen
        )

    @property
    def _is_asked(self) -> bool:
        return self._told_to_end.is_set() or self._asked_by_signal or self._ended.is_set()

    def _look_for_hang(self, now_ns: int) -> None:
        if self._told_to_end.is_set():
            return
        hung, slow = self._hangs.due(now_ns, self._pids(), self._nodes.delays)
        for report in slow:
            self._say(
                f"slow: {report.text}; not a hang yet: earlier steps took long, too, or the rank computes or waits for "
                "a CPU"
            )
        for report in hung:
            attempt = max((attempt_of(self._run.latest(rank).name) for rank in report.ranks), default=0)
            self._nodes.share_hang(report.stall, attempt, lambda report=report: self._act_on_hang(report))  # type: ignore[misc]

    def _act_on_hang(self, report: HangReport) -> None:
        if self._told_to_end.is_set() or self._hangs.has_gone_on(report):  # while nodes agreed on who captures it, say
            return
        text = f"{report.text}{self._where(report)}"
        incident = Incident(kind=IncidentKind.HANG, text=text, moment=report.moment)
        folders = [self._run.latest(rank) for rank in report.ranks]
        with self._incident(incident, [folder.name for folder in folders]) as entry:
            for folder in folders:
                if self._told_to_end.is_set():
                    return
                self._guarded(partial(self._capture_hung, entry, folder, incident))

    def _capture_hung(self, entry: Entry, folder: Path, incident: Incident) -> None:
        if has_past(self._run, folder):
            self._freeze(entry, Wanted(folder=folder.name, incident=incident))
        else:
            self._capture_live(entry, rank_of(folder), incident)

    def _where(self, report: HangReport) -> str:
        """`; rank 1 stands at train.py:27 in load`: of those that never came, from the stacks of all ranks, which are
        taken before anything else is asked of them."""
        taken = self._take_stacks(report.place)
        sources = {rank: taken.ranks[rank].source for rank in report.never_came if rank in taken.ranks}
        return "".join(f"; rank {rank} is at {source}" for rank, source in sources.items() if source is not None)

    def _take_stacks(self, hang: HangPlace | None = None) -> JobStacks:
        living = [self._run.ranks / name for name, process in self._processes.items() if process.is_alive()]
        try:
            taken = take_stacks(self._run, living, hang, self._log_offset_ns)
        except Exception as error:  # no threads can be had, say: a hang is told all the same
            self._ledger.problem(f"no stacks were kept: {error}")
            return JobStacks(taken_wall_ns=0, attempt=0, ranks={})
        for problem in dict.fromkeys(stacks.problem for stacks in taken.ranks.values() if stacks.problem):
            self._ledger.problem(f"stack {problem}")
        return taken

    def _pids(self) -> dict[int, int]:
        """Of the latest attempts of ranks that can be seen from here."""
        ordered = sorted(self._processes.items(), key=lambda item: attempt_of(item[0]))
        return {int(name.partition(".")[0]): process.pid for name, process in ordered if process.pid is not None}

    def _capture_live(self, entry: Entry, rank: int, incident: Incident) -> None:
        if not self._ledger.has_room():
            return
        output = self._run.capsules / f"{incident.kind}-rank{rank}-{time.strftime('%H%M%S')}"
        request = CaptureRequest(
            run=self._run,
            rank=rank,
            output=output,
            window_steps=0 if incident.kind is IncidentKind.HANG else 1,
            incident=incident,
            timeout_s=WINDOW_BOUND_S,
            patience=HUNG if incident.kind is IncidentKind.HANG else PATIENT,
            node=self._nodes.name,
        )
        try:
            with self._nodes.holding():
                made = capture(request, self._say)
            self._ledger.capsule(entry, made)
        except NotReplayable as error:
            self._ledger.evidence(entry, error)
        except (PrismError, OSError) as error:
            hint = error.hint if isinstance(error, PrismError) else ""
            self._ledger.problem(f"rank {rank} could not be captured: {error}", hint)

    def _capture_on_signal(self) -> None:
        if not self._asked_by_signal or self._told_to_end.is_set():
            return
        self._asked_by_signal = False
        if "signal" not in self._policy.triggers:
            return
        incident = Incident(kind=IncidentKind.SIGNAL, text="SIGUSR1 sent to `prismdbg record`")
        living = [name for name, process in self._processes.items() if process.is_alive()]
        with self._incident(incident, living) as entry:
            self._take_stacks()
            for name in living:
                if self._told_to_end.is_set():
                    return
                self._guarded(partial(self._capture_now, entry, self._run.ranks / name, incident))

    def _capture_now(self, entry: Entry, folder: Path, incident: Incident) -> None:
        if has_past(self._run, folder):
            self._freeze(entry, wanted_now(folder, incident))
        else:
            self._capture_live(entry, rank_of(folder), incident)


def _why_lost(run: Path) -> str:
    """Why nothing can be done in it; empty where something can."""
    try:
        run.stat()
    except FileNotFoundError:
        return f"{run} was removed: nothing more is recorded"
    except OSError as error:  # its file server was lost
        return f"{run} cannot be reached: {error.strerror}; incidents are not detected until it is reachable again"
    return ""


def _terminal_signals_us() -> bool:
    """Whether this process group is the one a terminal's Ctrl-C goes to."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # no terminal, or no standard input
        return False
