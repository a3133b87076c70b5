"""What a run folder holds, rank by rank, from its files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any

import numpy as np

from prismdbg.capsule.log.format import SUMMARY, payload_segment
from prismdbg.capsule.log.notes import exit_codes
from prismdbg.capsule.log.reader import event_segments
from prismdbg.diagnosis.outlived import was_outlived
from prismdbg.errors import CapsuleError, shortened
from prismdbg.jobs.storage.emulated_run import OWN_NAME, EmulatedRun, read_emulated
from prismdbg.jobs.storage.inventory import disk_bytes, is_recording
from prismdbg.jobs.storage.job_nodes import NodeFolder, NodeState, node_states, nodes_of_ranks, supervisor_report
from prismdbg.jobs.storage.ranks_alive import RankProcess, was_replaced
from prismdbg.jobs.storage.run_files import whole_incidents
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of, read_json
from prismdbg.log.columns import LAST_BYTES, NOT_ENDED, LogColumns, read_whole
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted
from prismdbg.model.sizes import size

MOST_SAID = 500  # characters of an incident's text in one line: `why` and the capsule have it whole
MANY = 64  # ranks, and what their supervisors told last is shown in place of what their logs say
RAISED = "raised"  # told of a rank that goes on, or that ends now


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """`window`: first and last moment of which payloads are there, or `-`."""

    name: str
    state: str
    moment: str
    collectives: int
    in_flight: int
    steps: int
    window: str
    log_bytes: int
    payload_bytes: int
    lost: str
    node: str = ""

    def to_json(self) -> dict[str, Any]:
        known = asdict(self)
        return known if self.node else {name: value for name, value in known.items() if name != "node"}


class StatesSeen:
    """States of ranks whose logs somebody else reads, so that nobody reads them twice."""

    def __init__(self, run: RunFolder) -> None:
        self.states: dict[Path, RankState] = {}
        self._end = _JobEnd(run)

    def add(self, folder: Path, log: LogColumns) -> None:
        """`log`: at least what `rank_states` reads of it. A damaged one it shall read itself, and refuse."""
        if log.damage is None and (folder / "rank.json").exists():
            self.states[folder.resolve()] = _of_log(folder, log, None, self._end)


class _JobEnd:
    """What the supervisor says of it; read when first asked for."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run

    @property
    def is_seen(self) -> bool:
        return "exit_code" in self._report

    def was_with_0(self, name: str) -> bool:
        """Whether the rank of that folder ended by itself with exit code 0, whatever its log says."""
        return self._deaths.get(name) == (0, 0)

    @cached_property
    def _report(self) -> Mapping[str, Any]:
        return supervisor_report(self._run)

    @cached_property
    def _deaths(self) -> dict[str, tuple[Any, Any]]:
        """By folder the signal and the exit code."""
        known = self._report.get("how_they_died", [])
        deaths = [death for death in known if isinstance(death, Mapping)] if isinstance(known, list) else []
        return {str(death.get("rank")): (death.get("signal"), death.get("code")) for death in deaths}


def rank_states(
    run: RunFolder,
    nodes: Sequence[NodeState] = (),
    seen: Mapping[Path, RankState] = MappingProxyType({}),
    each: Callable[[Sequence[Path]], Iterable[Path]] = iter,
) -> list[RankState]:
    """`nodes`: of a job with several supervisors, else none. seen: by folder, what is known, of `StatesSeen`; the logs
    of these ranks are not read again. each: gives the ranks' folders one by one, and may tell how far they are read."""
    places = _places(nodes)
    folders = [folder for folder in run.rank_folders() if (folder / "rank.json").exists()]
    end = _JobEnd(run)
    are_many = len(folders) > MANY
    return [
        seen.get(folder.resolve()) or _state(folder, places.get(folder.name), end, are_many=are_many)
        for folder in each(folders)
    ]


def state_of_rank(run: RunFolder, rank: int, nodes: Sequence[NodeState] = ()) -> RankState | None:
    """As `rank_states`, of its last attempt; no other log is read. None where it has none."""
    every = run.rank_folders()
    folders = [folder for folder in every if rank_of(folder) == rank and (folder / "rank.json").exists()]
    if not folders:
        return None
    return _state(folders[-1], _places(nodes).get(folders[-1].name), _JobEnd(run), are_many=len(every) > MANY)


def _places(nodes: Iterable[NodeState]) -> dict[str, NodeState]:
    return dict(chain.from_iterable(((name, node) for name in node.ranks) for node in nodes))


def _state(folder: Path, node: NodeState | None, end: _JobEnd, *, are_many: bool) -> RankState:
    """are_many: to read all of their logs takes long."""
    if node is not None and folder.name in node.progress and (are_many or (node.local and not node.visible)):
        return _told(folder, node, node.progress[folder.name])
    logs = folder if node is None else node.logs_of(folder)
    if node is not None and node.local and not event_segments(logs):
        return _untold(folder, node)
    try:
        return _read(logs, node, end)
    except (CapsuleError, OSError):
        if (logs / "rank.json").exists():
            raise
        return _read(folder, node, end)  # its job has ended meanwhile: the log is in RUN now, and not here


def _told(folder: Path, node: NodeState, told: Mapping[str, Any]) -> RankState:
    """As its node's last heartbeat says: the log is not in RUN so far, or older there."""
    return RankState(
        name=folder.name,
        node=node.name,
        state=_word_told(folder, node, str(told["word"])),
        moment=str(told["moment"]),
        collectives=told["collectives"],
        in_flight=told["in_flight"],
        steps=Moment.parse(str(told["moment"])).step,
        window="?" if told["payload_bytes"] else "-",
        log_bytes=told["log_bytes"],
        payload_bytes=told["payload_bytes"],
        lost=str(told["lost"]),
    )


def _untold(folder: Path, node: NodeState) -> RankState:
    """Its log is on its node, and no heartbeat says how far it came: RUN was full, say."""
    return RankState(
        name=folder.name,
        node=node.name,
        state=_word_told(folder, node, ""),
        moment="?",
        collectives=0,
        in_flight=0,
        steps=0,
        window="?",
        log_bytes=0,
        payload_bytes=0,
        lost=f"how far it came is not in RUN: its log is on node {node.name}",
    )


def _word_told(folder: Path, node: NodeState, word: str) -> str:
    if word in ("failed", "ended"):
        return word
    if node.has(folder.name):
        return word if word and word != RAISED else "running"
    if word == RAISED:
        return "failed"
    return "lost" if node.is_lost else "died"


def _read(folder: Path, node: NodeState | None, end: _JobEnd) -> RankState:
    return _of_log(folder, read_whole(folder, LAST_BYTES), node, end)


def _of_log(folder: Path, log: LogColumns, node: NodeState | None, end: _JobEnd) -> RankState:
    return RankState(
        name=folder.name,
        node="" if node is None else node.name,
        state=_word(folder, log, node, end),
        moment=str(log.last_moment),
        collectives=log.issued,
        in_flight=int((log.ended_ns == NOT_ENDED).sum()),
        steps=_steps(log),
        window=_window(folder, log),
        log_bytes=log_bytes(folder),
        payload_bytes=payload_bytes(folder),
        lost="; ".join(str(n.data.get("text", "")) for n in log.notes if n.kind in ("lost", "no_agent")),
    )


def _steps(log: LogColumns) -> int:
    if log.steps:
        return log.steps[-1].step
    return int(log.summary["last_step"].max(initial=0))  # the last one began before the part that was read


def _window(folder: Path, log: LogColumns) -> str:
    """The first and the last moment with a payload; of steps that only the summary has, those that have all."""
    kept = [number for number in set(log.payload_segment.tolist()) if (folder / payload_segment(number)).exists()]
    rows = np.flatnonzero(log.has_payload & np.isin(log.payload_segment, kept))
    if not len(rows):
        return "-"
    first, last = log.moment(rows[0]), log.moment(rows[-1])
    earlier = log.summary[(log.summary["payload_segment"] >= 0) & (log.summary["last_step"] <= first.step)]
    there = [
        segment for segment in set(earlier["payload_segment"].tolist()) if (folder / payload_segment(segment)).exists()
    ]
    earlier = earlier[np.isin(earlier["payload_segment"], there)]
    if len(earlier):
        first = min(first, Moment(int(earlier["first_step"][0]), int(earlier["payload_nth"][0])))
    return f"{first}..{last}"


def log_bytes(folder: Path) -> int:
    return _used(folder, "events.*.seg") + _used(folder, SUMMARY)


def payload_bytes(folder: Path) -> int:
    return _used(folder, "payload.*.seg")


def _used(folder: Path, pattern: str) -> int:
    """Bytes on disk, not the size reserved."""
    used = 0
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):  # the rank has dropped it meanwhile
            used += path.lstat().st_blocks * 512
    return used


def _word(folder: Path, log: LogColumns, node: NodeState | None, end: _JobEnd) -> str:
    kinds = [note.kind for note in log.notes]
    process = RankProcess(folder)
    if was_replaced(folder):
        return "ended"
    if process.is_stopped():
        return "stopped"
    if process.is_alive():
        parks = [kind for kind in kinds if kind in ("parked", "released")]
        return "parked" if parks and parks[-1] == "parked" else "running"
    if "exit" in kinds:  # its code says whether an exception ended it, or was only printed
        return "failed" if any(exit_codes(log.notes)) else "ended"
    if any(note.kind == "incident" and not was_outlived(log, note) for note in log.notes):
        return "failed"
    if end.was_with_0(folder.name):  # os._exit, say
        return "ended"
    if node is not None and process.is_out_of_sight:
        return "running" if node.has(folder.name) else "lost" if node.is_lost else "died"
    return "not visible from here" if process.is_out_of_sight and not end.is_seen else "died"


def report(
    path: Path,
    states: Sequence[RankState] | None = None,
    nodes: Sequence[NodeState] | None = None,
    *,
    is_told: bool = False,
) -> list[str]:
    """A few lines for a person: ranks, incidents, capsules, what was lost, what to do next. `states`, `nodes`: where
    they are known. is_told: incidents, capsules and problems were said when they came, and are only counted."""
    run = RunFolder.existing(path)
    lines = []
    try:
        nodes = node_states(run) if nodes is None else nodes
        states = rank_states(run, nodes) if states is None else states
    except CapsuleError as error:
        return [f"a log cannot be read: {error}"]
    if not states and read_emulated(run) is not None:
        return [f"{path} contains no rank: no rank finished; an interrupted rank leaves no data"]
    if not states and (begun := run.rank_folders()):
        return [f"{path} contains no rank that can be replayed: {counted(len(begun), 'log')} could not be written"]
    if not states and is_recording(run, supervisor_report(run)):
        return [
            f"{path} contains no rank so far: the job is running, but no rank has issued a collective or an optimizer "
            "step yet"
        ]
    if not states:
        return [f"{path} contains no rank: the job issued no collective and no optimizer step"]
    collectives = sum(s.collectives for s in states)
    ranks = counted(len(states), "rank")
    lines.append(f"{path}: {ranks}, {counted(collectives, 'collective')}, {size(disk_bytes(path))}")
    lines += [f"rank {s.name}: {s.lost}" for s in states if s.lost]
    lines += [node.text for node in nodes]
    lines += [node.left_line(path) for node in nodes if node.left]
    if (emulated := read_emulated(run)) is not None:
        return [*lines, *_emulated(path, emulated, states)]
    supervisor = supervisor_report(run)
    lines += _counts(supervisor) if is_told else [*_events(supervisor), *_damage(run)]
    if supervisor.get("incidents"):
        lines.append(f"next: prismdbg why {quote(str(path))}")
    return lines


def report_of_node(run: RunFolder, node: NodeFolder, path: Path) -> list[str]:
    """A few lines on what one supervisor of several has recorded: it does not read the logs of other nodes."""
    ranks = [rank for rank, owner in nodes_of_ranks(run).items() if owner == node.name]
    supervisor = read_json(node.supervisor_json)
    lines = [f"{path}: {counted(len(ranks), 'rank')} of node {node.name}", *_counts(supervisor)]
    return [*lines, f"next: prismdbg why {quote(str(path))}"] if supervisor.get("incidents") else lines


def _events(supervisor: dict[str, Any]) -> list[str]:
    lines = [
        f"incident: {shortened(str(i.get('text', i.get('kind'))), MOST_SAID)}" for i in whole_incidents(supervisor)
    ]
    lines += [f"capsule: {c}" for c in supervisor.get("capsules", [])]
    lines += [f"evidence (cannot be replayed): {e}" for e in supervisor.get("evidence", [])]
    return [*lines, *(f"problem: {p}" for p in supervisor.get("problems", []))]


def _damage(run: RunFolder) -> Iterator[str]:
    """Of the only supervisor's report; `NodeState` names what is damaged of several."""
    try:
        read_json(run.supervisor_json)
    except CapsuleError as error:
        yield f"problem: {error}"


def _counts(supervisor: dict[str, Any]) -> list[str]:
    nouns = {"incidents": "incident", "capsules": "capsule", "problems": "problem"}
    counts = [counted(len(supervisor[key]), noun) for key, noun in nouns.items() if supervisor.get(key)]
    return [", ".join(counts)] if counts else []


def _emulated(path: Path, world: EmulatedRun, states: Sequence[RankState]) -> list[str]:
    there = f"{len(world.ran)} of {counted(world.world, 'rank')} of {world.mesh} ({world.ran_text})"
    lines = [f"emulated: {there}, each among virtual peers; the peers' data was synthesized"]
    if (passed := world.passed) is not None:
        lines.append(f"transfers and waits: {passed.line()}")
        lines += [f"not reliable: {doubt}" for doubt in passed.doubts()]
    lines += [f"capsule: {capsule}" for capsule in sorted(world.run.capsules.glob(f"{OWN_NAME}*[0-9]"))]
    typed = quote(str(path))
    cut_short = [state for state in states if state.state in ("failed", "died")]
    if cut_short:
        first = cut_short[0]
        lines.append(f"rank {first.name} {first.state} at {first.moment}: the run does not represent all ranks")
        lines.append(f"next: prismdbg debug {typed} --rank {rank_of(Path(first.name))}")
    elif any(state.state in ("running", "parked", "stopped") for state in states):
        lines.append("it is still running")
    elif world.speaks_for_all:
        lines.append(f"next: prismdbg debug {typed} --rank {world.ran[0]}; all ranks: prismdbg graph build {typed}")
    elif world.ran:
        lines.append(f"next: prismdbg debug {typed} --rank {world.ran[0]}")
        lines.append(
            "all ranks: run one of each class (emulate --classes), or specify along which axes ranks do the same: "
            f"prismdbg graph build {typed} --alike AXES"
        )
    return lines
