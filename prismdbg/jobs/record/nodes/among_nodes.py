"""What a supervisor does because it is not the job's only one: it follows the ranks of its node alone, shares incidents
with the others, and watches over the next of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from prismdbg.capsule.log.events import Event
from prismdbg.capsule.manifest import IncidentKind
from prismdbg.diagnosis.stalls import Stall
from prismdbg.errors import CapsuleError
from prismdbg.jobs.record.decisions import Again, Decisions, Over, Which
from prismdbg.jobs.record.hangs import NO_DELAYS, Delays
from prismdbg.jobs.record.incidents import MOST_OUTLIVED, IsOver, Wanted
from prismdbg.jobs.record.interruption import GOES_ON_NS
from prismdbg.jobs.record.nodes.delays_elsewhere import DelaysElsewhere
from prismdbg.jobs.record.nodes.heartbeat import NeighbourWatch, Silence, has_ended
from prismdbg.jobs.record.nodes.known_nodes import KnownNodes
from prismdbg.jobs.record.nodes.membership import Member
from prismdbg.jobs.record.nodes.publisher import LAST_TRIES_S, Publisher
from prismdbg.jobs.record.nonfinite_watch import MOST_INCIDENTS
from prismdbg.jobs.record.rank_progress import RankProgress
from prismdbg.jobs.record.request_answers import RequestAnswers
from prismdbg.jobs.storage.file_system_time import now_in
from prismdbg.jobs.storage.generations import last_generation
from prismdbg.jobs.storage.job_nodes import NodeFolder, node_folders
from prismdbg.jobs.storage.ranks_alive import RankProcess
from prismdbg.jobs.storage.run_folder import RunFolder, attempt_of, rank_of, read_if_whole, read_json, write_json
from prismdbg.settings.process_stat import seconds_since

LOOK_S = 1.0
LISTED_S = 0.002  # more for each log folder
MOST_LOOK_S = 5.0  # a rank that ends before it was looked at is not known to have been alive
_BY_ITSELF, _LOST, _IN_A_COLLECTIVE = range(3)  # the first is nearest to the cause


class OnlyNode:
    """The same for a job's only supervisor: all ranks are its own, and nobody is asked before it acts."""

    name = ""
    has_to_decide = False
    has_to_tell = False
    left_in = ""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self.supervisor_json = run.supervisor_json

    def own(self, *, at_once: bool) -> list[Path]:
        return self._run.rank_folders()

    def feed(self, name: str, event: Event) -> None:
        """Nobody is told of it."""

    def look(self, processes: Mapping[str, RankProcess], delays: Callable[[], Delays] = Delays) -> None:
        """There is nobody to look after."""

    def delays(self) -> Delays:
        return NO_DELAYS

    def holding(self) -> AbstractContextManager[None]:
        return nullcontext()

    def publish(self) -> None:
        """Everything is in RUN."""

    def settle(self) -> None:
        """Nothing is left open."""

    def settle_at_the_end(self) -> None:
        """Nor then."""

    def decide_alone(self) -> None:
        """Nor is there anybody else."""

    def share(self, wanted: Wanted, raised_inside: bool | None, act: Callable[[Wanted], None]) -> None:
        act(wanted)

    def note_over(self, over: IsOver) -> None:
        """Nor of that."""

    def note_told(self, told_ns: int) -> None:
        """Its report says it."""

    def share_hang(self, stall: Stall, attempt: int, act: Callable[[], None]) -> None:
        act()

    def made_elsewhere(self) -> int:
        return 0


class AmongNodes:
    """`tell`: what the ledger keeps as a problem."""

    def __init__(self, member: Member, tell: Callable[[str], None]) -> None:
        self.name = member.node.name
        self.supervisor_json = member.node.supervisor_json
        self._node = member.node
        self._run = member.run
        self._restart = member.node.restart
        self._heart = member.heart
        self._problem = tell
        self._known: dict[str, bool] = {}  # whether a log folder is of this node
        self._looked_s = 0.0
        self._attempts: dict[int, int] = {}  # of ranks here, and of the job
        self._decisions = Decisions(
            member.run,
            member.node.name,
            tell,
            is_lost=self._is_lost,
            has_ended=lambda name: has_ended(self._other(name)),
        )
        self._deciders: dict[str, Silence] = {}
        self._neighbours = NeighbourWatch(RunFolder(member.run.path), member.node, member.heart, tell)
        self._elsewhere = DelaysElsewhere(self.name, KnownNodes(RunFolder(member.run.path), member.node.restart))
        self._requests = RequestAnswers(member.run, member.node, tell)
        self._publisher = None if member.run.local is None else Publisher(member.run, member.node, member.heart, tell)
        self._progress = RankProgress(member.run)
        self._living: tuple[list[str], list[str]] = [], []
        self._told_s = 0.0

    def own(self, *, at_once: bool) -> list[Path]:
        """Log folders of this node's ranks. All are looked through once a second, and less often the more there are:
        they may be thousands, on a file server."""
        now_s = time.monotonic()
        if at_once or now_s - self._looked_s > min(LOOK_S + LISTED_S * len(self._known), MOST_LOOK_S):
            self._looked_s = now_s
            for folder in self._run.rank_folders():
                with suppress(CapsuleError, OSError):  # a damaged one is nobody's
                    if folder.name not in self._known and (folder / "rank.json").exists():
                        self._known[folder.name] = self._node.owns(folder)
        return [self._run.ranks / name for name, is_own in self._known.items() if is_own]

    def look(self, processes: Mapping[str, RankProcess], delays: Callable[[], Delays] = Delays) -> None:
        """delays: of the ranks of this node, for the others."""
        living = [name for name, process in processes.items() if process.is_alive()]
        self._living = living, sorted(processes.keys() - set(living))
        steps = [self._neighbours.look, self._requests.look]
        if time.monotonic() - self._told_s > LOOK_S:
            self._told_s = time.monotonic()
            steps += [lambda: self._tell(delays()), *([] if self._publisher is None else [self._publisher.look])]
        failures = [error for step in steps if (error := _failure_of(step)) is not None]
        if failures:
            raise failures[0]

    def _tell(self, delays: Delays) -> None:
        self._heart.tell(*self._living, self._progress.to_json(self.own(at_once=False)), delays)

    def delays(self) -> Delays:
        """Of ranks of other nodes."""
        return self._elsewhere.look()

    def holding(self) -> AbstractContextManager[None]:
        """While this supervisor takes an image of a rank: others hear of it."""
        return self._heart.holding()

    def feed(self, name: str, event: Event) -> None:
        self._progress.feed(name, event)

    def publish(self) -> None:
        """How far the ranks came, once they have ended, and what they have left on this node."""
        self._living = [], sorted({*self._living[0], *self._living[1]})
        self._heart.tell(*self._living, self._progress.to_json(self.own(at_once=False), at_once=True))
        if self._publisher is not None:
            self._publisher.finish()

    @property
    def left_in(self) -> str:
        """The folder of this node that has what RUN lacks; empty where RUN lacks nothing."""
        return "" if self._publisher is None else self._publisher.left_in

    @property
    def has_to_decide(self) -> bool:
        return self._decisions.is_open

    @property
    def has_to_tell(self) -> bool:
        return self._decisions.has_to_tell

    def settle(self) -> None:
        """How ranks end once a supervisor was told to end is no incident, on whichever node."""
        if self._decisions.is_open and self._was_told(self._node):
            self._decisions.drop()
        self._decisions.settle()

    def settle_at_the_end(self) -> None:
        """As `settle`; alone, where RUN could not be written to for long."""
        self.settle()
        if self._decisions.failing_s > LAST_TRIES_S:
            self._decisions.act_alone()

    def decide_alone(self) -> None:
        """What is open, without the others: nothing may stay open for ever."""
        self._decisions.act_alone()

    def _is_lost(self, name: str) -> bool:
        """Asked again and again of one that captures an incident."""
        if name not in self._deciders:
            self._deciders[name] = Silence(self._other(name), self._heart)
        silence = self._deciders[name]
        return not silence.heard() and silence.is_too_long

    def _other(self, name: str) -> NodeFolder:
        return NodeFolder(self._run.nodes / name)

    def note_told(self, told_ns: int) -> None:
        """When this supervisor was told to end, by CLOCK_MONOTONIC: others see by it which incidents may come of it."""
        with suppress(OSError):  # its report says at least that it was
            if not self._node.told.exists():
                write_json(self._node.told, {"age_s": time.monotonic() - told_ns / 1e9})

    def _may_come_of_an_end(self, folder: str, time_ns: int) -> bool:
        """Whether another node was told to end, and what happened then to this rank may be a consequence: the rank was
        there, and did not go on for long after that. Asked by the one that acts, once: of all nodes."""
        told = self._told_nodes()
        if not told:
            return False
        try:
            now_s = now_in(self._run.nodes)
            ago_s = [now_s - _told_at_s(node) for node in told]
        except OSError:  # what is wrong with RUN is told by what is done next
            return True
        begun_ago_s = seconds_since(read_if_whole(self._run.ranks / folder / "rank.json").get("started_ticks"))
        happened_ago_s = time.monotonic() - time_ns / 1e9
        return any(begun_ago_s >= one_s and happened_ago_s >= one_s - GOES_ON_NS / 1e9 for one_s in ago_s)

    def _told_nodes(self) -> list[NodeFolder]:
        with suppress(OSError):
            return [node for node in node_folders(self._run, self._restart, self._problem) if self._was_told(node)]
        return []

    def _was_told(self, node: NodeFolder) -> bool:
        with suppress(CapsuleError, OSError):
            return bool(read_json(node.supervisor_json).get("interrupted"))
        return False

    def share(self, wanted: Wanted, raised_inside: bool | None, act: Callable[[Wanted], None]) -> None:
        """`act` once, by the supervisor that is nearest to the cause. raised_inside: as `raised_in_collective` says."""

        def act_unless_told(which: Which) -> None:
            if not self._may_come_of_an_end(wanted.folder, wanted.time_ns):
                act(wanted.as_nth(which.number, which.since_step))

        name = _name(self._attempt(attempt_of(wanted.folder)), wanted.incident.kind)
        self._decisions.propose(name, _key(wanted, raised_inside), act_unless_told, _again(wanted))

    def note_over(self, over: IsOver) -> None:
        told = Over(time_ns=over.time_ns, since_step=over.since_step)
        self._decisions.note_over(_name(self._attempt(over.attempt), over.kind), told)

    def share_hang(self, stall: Stall, attempt: int, act: Callable[[], None]) -> None:
        """By the supervisor that knows which rank never came, if one does."""
        first = stall.first
        folder, began_ns = f"{first.rank}.{attempt}" if attempt else str(first.rank), first.collective.time_created_ns

        def act_unless_told(_which: Which) -> None:
            if not self._may_come_of_an_end(folder, began_ns):
                act()

        key = 0 if stall.never_came else 1, first.rank
        self._decisions.propose(f"{self._attempt(attempt)}-hang-{first.collective.identity}", key, act_unless_told)

    def _attempt(self, own: int) -> int:
        """As the node counts that counts most: all nodes must give an incident the same name. It stays what it was when
        it was first asked for."""
        if own not in self._attempts:
            self._attempts[own] = own
            with suppress(OSError):
                self._attempts[own] = self._attempt_of_job(own)
        return self._attempts[own]

    def _attempt_of_job(self, own: int) -> int:
        here = {name: self._run.ranks / name for name, is_own in self._known.items() if is_own}
        found = [here.get(folder.name, folder) for folder in RunFolder(self._run.path).rank_folders()]
        together = [folder.name for folder in last_generation(found)]
        if any(name in here and attempt_of(name) == own for name in together):
            return max(map(attempt_of, together))
        return own

    def made_elsewhere(self) -> int:
        """Capsules of incidents that other supervisors have made."""
        made = 0
        for node in node_folders(self._run):
            if node.name != self.name:
                with suppress(CapsuleError, OSError):
                    report = read_json(node.supervisor_json)
                    made += len(report.get("capsules", [])) + len(report.get("evidence", []))
        return made


def _failure_of(step: Callable[[], None]) -> Exception | None:
    """A file that cannot be read, whoever has written it, keeps nobody from the other steps."""
    try:
        step()
    except Exception as error:
        return error
    return None


def _told_at_s(node: NodeFolder) -> float:
    """When a node was told to end, by the clock of the file system of RUN, and not earlier than it was."""
    with suppress(FileNotFoundError, CapsuleError):
        return node.told.stat().st_mtime - float(read_json(node.told).get("age_s", 0.0))
    return node.supervisor_json.stat().st_mtime


def _name(attempt: int, kind: IncidentKind) -> str:
    return f"{attempt}-{_family(kind)}"


def _again(wanted: Wanted) -> Again | None:
    """The rules by which one supervisor takes incidents for several (`incidents.py`, `nonfinite_watch.py`)."""
    moment = wanted.incident.moment
    match _family(wanted.incident.kind):
        case "nan":
            step = moment.step if moment is not None else None
            return Again(time_ns=wanted.time_ns, most=MOST_INCIDENTS, step=step)
        case "failure":
            return Again(time_ns=wanted.time_ns, most=MOST_OUTLIVED + 1, of_thread=wanted.of_thread)
    return None


def _family(kind: IncidentKind) -> str:
    """Kinds of which one may be seen on one node, and another as its consequence on another."""
    if kind in (IncidentKind.EXCEPTION, IncidentKind.OUT_OF_MEMORY, IncidentKind.LOST):
        return "failure"
    return str(kind)


def _key(wanted: Wanted, raised_inside: bool | None) -> tuple[int, ...]:
    moment, rank = wanted.incident.moment, rank_of(Path(wanted.folder))
    step, collective = (moment.step, moment.collective) if moment is not None else (0, 0)
    match _family(wanted.incident.kind):
        case "nan":
            return step, 0 if wanted.sent else 1, collective, rank
        case "failure":
            if wanted.incident.kind is IncidentKind.LOST:
                return _LOST, step, collective, rank
            return _IN_A_COLLECTIVE if raised_inside else _BY_ITSELF, step, collective, rank
    return step, 0 if wanted.waited_for else 1, collective, rank
