"""The nodes of a job that several supervisors record into one RUN: what each keeps there, when it was last heard of.

Clocks of nodes differ. Ages are differences of times that the file system of RUN gave, which all nodes see alike.
Nothing here is mapped or locked; what is published is renamed to its place.
"""

from __future__ import annotations

import contextlib
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any, TypedDict, TypeVar

from prismdbg.capsule.checked_json import Word, checked, read
from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.file_system_time import Beats, now_in
from prismdbg.jobs.storage.generations import last_generation
from prismdbg.jobs.storage.job_restarts import latest_restart
from prismdbg.jobs.storage.local_logs import LocalFolder
from prismdbg.jobs.storage.run_files import KINDS
from prismdbg.jobs.storage.run_folder import RunFolder, attempt_of, rank_of, read_if_whole, read_json
from prismdbg.model.durations import duration
from prismdbg.settings.boot import boot_id

SILENT_S = 10.0  # without a heartbeat, and a supervisor counts as gone
_JOB = "job.json"
_ABOUT = "node.json"
_BEAT = ".beat.json"
_OF_THE_END = ("exit_code", "ended_wall_ns", "interrupted")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_UNKNOWN: Mapping[str, Any] = MappingProxyType({})  # in place of a supervisor's report that is damaged

T = TypeVar("T")


class _WhoseJson(TypedDict, total=False):
    node: Word


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """What one supervisor keeps: `RUN/nodes/NAME`, and its heartbeat beside it."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def about(self) -> Path:
        return self.path / _ABOUT

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def supervisor_json(self) -> Path:
        return self.path / "supervisor.json"

    @property
    def beat(self) -> Path:
        """Beside the folders: whoever renews its own there has also asked a file server for those of others."""
        return self.path.with_name(f"{self.name}{_BEAT}")

    @property
    def told(self) -> Path:
        """There once its supervisor was told to end. It is written once, so that its time says when that was."""
        return self.path / "told.json"

    @property
    def published(self) -> Path:
        """There once the logs of its ranks are in RUN, all of them."""
        return self.path / "published.json"

    @property
    def local(self) -> LocalFolder | None:
        """Where its ranks write, while that is not RUN: by what RUN says, and on the node itself."""
        named = str(read_json(self.about).get("local", ""))
        return LocalFolder(Path(named)) if named and not self.published.exists() else None

    @property
    def restart(self) -> int:
        """How often the job had been started again when this supervisor joined it."""
        return int(read_json(self.about).get("restart", 0))

    def owns(self, rank_folder: Path) -> bool:
        """Whether this rank runs on this node. Not before it has described itself."""
        return node_of(rank_folder) == self.name


class Unseen(Enum):
    """Why a folder of this machine is not here."""

    GONE = auto()  # it was removed
    INSIDE = auto()  # it may be there in another mount namespace, such as a container's
    OTHER_BOOT = auto()  # the machine was restarted since, or the folder is on another one of the same name


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """`silent_s`: since its last heartbeat; None where it is over. `exit_code`: of its part of the job, if that has
    ended and its supervisor has seen it; else `end` says how it was over. ranks: log folders; gone: those whose
    processes were, when its heart beat last. local: where on the node its ranks' logs are, empty where they are in RUN;
    visible: that it is this machine, and they can be read there; unseen: that it has the name of this machine, and
    there is no such folder here; progress: how far its ranks were at its last heartbeat; damage: which of its files
    cannot be read, and why."""

    name: str
    ranks: tuple[str, ...]
    exit_code: int | None
    silent_s: float | None
    end: str = ""
    records_s: float | None = None
    gone: frozenset[str] = frozenset()
    local: str = ""
    visible: bool = False
    unseen: Unseen | None = None
    progress: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    damage: str = ""

    @property
    def left(self) -> str:
        """`the logs of rank 2, rank 3 are on node n2, in /tmp/prismdbg-x`: of a node that does not publish them any
        more."""
        if not self.local or (self.silent_s is not None and not self.is_lost):
            return ""
        ranks = ", ".join(f"rank {name}" for name in self.ranks) or "its ranks"
        return f"the logs of {ranks} {'were' if self.is_gone else 'are'} on node {self.name}, in {self.local}"

    def left_line(self, run: Path) -> str:
        """The same and what to do, where there is something left."""
        lost, command = f"what was not copied into {run} is lost", f"run `prismdbg publish {quote(str(run))}`"
        match self.unseen:
            case Unseen.GONE:
                return f"{self.left}, which is gone: {lost}"
            case Unseen.INSIDE:
                where = "in the container or the job that has this folder; if it has ended,"
                return f"{self.left}: {command} {where} {lost}"
            case Unseen.OTHER_BOOT:
                here = f"if this machine was restarted since, they are gone, and {lost}"
                return f"{self.left}: {here}; else {command} on the other machine called {platform.node()}"
        return f"{self.left}: {command} there"

    @property
    def is_gone(self) -> bool:
        return self.unseen is Unseen.GONE

    def logs_of(self, folder: Path) -> Path:
        """Where the log of a rank of it can be read from here. `folder`: in RUN."""
        return Path(self.local) / "ranks" / folder.name if self.visible else folder

    @property
    def is_lost(self) -> bool:
        """Its supervisor is gone, and perhaps all of the node."""
        return self.silent_s is not None and self.silent_s > SILENT_S

    @property
    def goes_on(self) -> bool:
        """A rank of it wrote into its log after the last heartbeat: the supervisor alone is gone."""
        return self.records_s is not None and self.records_s < min(self.silent_s or 0.0, SILENT_S)

    @property
    def recorded_s(self) -> float | None:
        """How long ago its ranks recorded last, if that was clearly after its last heartbeat: its supervisor was lost
        before they were."""
        if self.records_s is None or self.silent_s is None or self.silent_s - self.records_s <= SILENT_S:
            return None
        return self.records_s

    def has(self, rank_folder: str) -> bool:
        """Whether the process of one of its ranks may be there."""
        if self.silent_s is None or rank_folder in self.gone:
            return False
        return not self.is_lost or self.goes_on

    @property
    def state(self) -> str:
        if self.silent_s is None:
            return self.end or ("ended" if not self.exit_code else f"ended with {self.exit_code}")
        if not self.is_lost:
            return "running"
        return "supervisor lost" if self.goes_on else "lost"

    @property
    def text(self) -> str:
        """`node n2 (rank 2, rank 3): lost, no heartbeat for 43 s`"""
        ranks = f" ({', '.join(f'rank {name}' for name in self.ranks)})" if self.ranks else ""
        damage = f"; {self.damage}" if self.damage else ""
        if not self.is_lost or self.silent_s is None:
            return f"node {self.name}{ranks}: {self.state}{damage}"
        silent = f"no heartbeat for {duration(self.silent_s)}"
        recorded = f", its ranks recorded last {duration(self.recorded_s)} ago" if self.recorded_s is not None else ""
        also = ", its ranks still run, but without a supervisor" if self.goes_on else recorded
        return f"node {self.name}{ranks}: {self.state}, {silent}{also}{damage}"

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.name,
            "state": self.state,
            "ranks": list(self.ranks),
            "exit_code": self.exit_code,
            "silent_s": None if self.silent_s is None else round(self.silent_s, 1),
            **({"local": self.local} if self.local else {}),
            **({"damage": self.damage} if self.damage else {}),
        }


def is_shared(run: RunFolder) -> bool:
    """Whether several supervisors may record into it."""
    return (run.nodes / _JOB).is_file()


def job_file(nodes: Path) -> Path:
    return nodes / _JOB


def node_folders(
    run: RunFolder, restart: int | None = None, tell: Callable[[str], None] = lambda _: None
) -> list[NodeFolder]:
    """In the order of their names; those that have described themselves. restart: only those of this one. Of which that
    cannot be read is passed over, and `tell` is told: it hides no other."""
    if not run.nodes.is_dir():
        return []
    nodes = [NodeFolder(path) for path in sorted(run.nodes.iterdir()) if is_described(path)]
    return nodes if restart is None else [node for node in nodes if _is_of(node, restart, tell)]


def is_described(path: Path) -> bool:
    """Whether it is the folder of a node. Also where that cannot be looked up: then whoever reads it is told why."""
    try:
        return _NAME.fullmatch(path.name) is not None and path.suffix != ".json" and (path / _ABOUT).is_file()
    except OSError:
        return True


def _is_of(node: NodeFolder, restart: int, tell: Callable[[str], None]) -> bool:
    try:
        return node.restart == restart
    except (CapsuleError, OSError) as error:
        tell(f"node {node.name} is passed over: {error}")
        return False


def node_of(rank_folder: Path) -> str:
    """The node of a rank; empty in a job with one supervisor, and while that is not known. Nothing else in its file is
    checked: the log of a rank whose description cannot be used is followed all the same."""
    path = rank_folder / "rank.json"
    if not path.is_symlink() and not path.exists():
        return ""
    return checked(_WhoseJson, read(path).value, str(path)).get("node", "")


def nodes_of_ranks(run: RunFolder) -> dict[str, str]:
    """By log folder, as far as the supervisors or the ranks themselves say it."""
    if not is_shared(run):
        return {}
    found = {name: node.name for node in node_folders(run) for name in _told_of(node)}
    for folder in run.rank_folders():
        if folder.name in found:
            continue
        with contextlib.suppress(CapsuleError):  # a damaged rank.json hides no other
            if node := node_of(folder):
                found[folder.name] = node
    return found


def _told_of(node: NodeFolder) -> Sequence[str]:
    with contextlib.suppress(CapsuleError):
        return list(last_beat(node).get("progress", ()))
    return ()


def _now_s(run: RunFolder, nodes: Sequence[NodeFolder]) -> float:
    """By the file system of RUN; never too late, so that no node is called lost that is heard of."""
    try:
        return now_in(run.nodes)
    except OSError:
        if not any(_goes_on(node) for node in nodes) or not _last_beat_s(run.nodes):
            return time.time()
        return _beats(run.nodes).now(SILENT_S)


def _goes_on(node: NodeFolder) -> bool:
    return "exit_code" not in read_if_whole(node.supervisor_json)


@cache
def _beats(nodes: Path) -> Beats:
    """What was seen of them stays known: who asks again does not wait again."""
    return Beats(lambda: _last_beat_s(nodes))


def _last_beat_s(nodes: Path) -> float:
    """The folder is listed, for which a file server is asked; 0 where there is none."""
    beats = [path for path in nodes.iterdir() if path.name.endswith(_BEAT)]
    return max(map(_modified_s, beats), default=0.0)


def node_states(run: RunFolder) -> list[NodeState]:
    """Of all nodes, as the files in RUN tell it now."""
    folders = node_folders(run)
    if not folders:
        return []
    now_s, owners, latest = _now_s(run, folders), nodes_of_ranks(run), latest_restart(run)
    return [
        _state(run, node, [name for name, owner in owners.items() if owner == node.name], now_s, latest)
        for node in folders
    ]


def _state(run: RunFolder, node: NodeFolder, ranks: Sequence[str], now_s: float, latest: int) -> NodeState:
    """A damaged file of one node hides neither it nor another."""
    damage: list[str] = []
    supervisor = _if_whole(lambda: read_json(node.supervisor_json), _UNKNOWN, damage)
    beat: Mapping[str, Any] = _if_whole(lambda: last_beat(node), {}, damage)
    local = _if_whole(lambda: node.local, None, damage)
    quiet_s = now_s - _modified_s(node.beat)
    end = _end_unseen(supervisor, quiet_s, _restart_of(node, latest) < latest)
    silent_s = None if end or "exit_code" in supervisor else quiet_s
    writes = silent_s is not None and silent_s > SILENT_S and not node.published.exists()  # to publish writes logs, too
    is_visible = local is not None and local.is_of(run.path, node.name)
    logs = local.ranks if local is not None and is_visible else run.ranks
    return NodeState(
        name=node.name,
        ranks=tuple(sorted(ranks, key=lambda name: (rank_of(Path(name)), name))),
        exit_code=supervisor.get("exit_code"),
        end=end,
        silent_s=silent_s,
        records_s=now_s - max((_recorded_s(logs / name) for name in ranks), default=0.0) if writes else None,
        gone=frozenset(beat.get("gone", ())),
        local=str(local.path) if local is not None else "",
        visible=is_visible,
        unseen=_unseen(node, local),
        progress=beat.get("progress", {}),
        damage="; ".join(damage),
    )


def _unseen(node: NodeFolder, local: LocalFolder | None) -> Unseen | None:
    """Of a folder that this machine should have, by its name, and that does not exist here."""
    about = read_if_whole(node.about)
    if local is None or about.get("host") != platform.node() or not _is_missing(local.path):
        return None
    if about.get("boot_id", boot_id()) != boot_id():
        return Unseen.OTHER_BOOT
    is_ours = about.get("namespaces", {}).get("mnt") == Path("/proc/self/ns/mnt").stat().st_ino
    return Unseen.GONE if is_ours else Unseen.INSIDE


def _is_missing(path: Path) -> bool:
    """Not if it cannot be looked up: it may be another user's."""
    try:
        path.lstat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def _if_whole(ask: Callable[[], T], otherwise: T, damage: list[str]) -> T:
    try:
        return ask()
    except CapsuleError as error:
        damage.append(str(error))
        return otherwise


def _restart_of(node: NodeFolder, latest: int) -> int:
    """The latest where its file is damaged: what may go on is not taken for over."""
    return _if_whole(lambda: node.restart, latest, [])


def _end_unseen(supervisor: Mapping[str, Any], silent_s: float, was_restarted: bool) -> str:
    """How a node's part of the job was over though its supervisor has not seen that; empty where it has, or where the
    part may go on. A scheduler tells all to end, and kills what has not ended after a while."""
    if "exit_code" in supervisor:
        return ""
    if silent_s > SILENT_S and supervisor.get("interrupted"):
        return "killed after it was told to end"
    if silent_s > SILENT_S and supervisor is _UNKNOWN:  # it is not accused
        return "over; its exit code is unknown"
    return "lost before the job was restarted" if was_restarted else ""


def last_beat(node: NodeFolder) -> dict[str, Any]:
    """Empty where there is none. `CapsuleError` where it is damaged."""
    return checked(KINDS["beat.json"], read_json(node.beat), str(node.beat))


def _modified_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _recorded_s(folder: Path) -> float:
    """When the rank wrote into its log last."""
    return max(map(_modified_s, folder.glob("events.*.seg")), default=0.0)


def supervisor_report(run: RunFolder, clocks: Mapping[str, int] = MappingProxyType({})) -> dict[str, Any]:
    """`supervisor.json` of a job with one supervisor; of several the same fields of all of them. Without `exit_code`
    while a part of the job may go on. clocks: of each node, how many ns its clock is ahead. How a job ended that was
    started again is how it ended then. What is damaged says nothing."""
    if not is_shared(run):
        return read_if_whole(run.supervisor_json)
    latest, nodes = latest_restart(run), node_folders(run)
    reports = {node.name: _moved(read_if_whole(node.supervisor_json), clocks.get(node.name, 0)) for node in nodes}
    over = {node.name for node in nodes if _restart_of(node, latest) < latest}
    over |= _left(run, {name: report for name, report in reports.items() if name not in over})
    for name in over:
        reports[name] = {key: value for key, value in reports[name].items() if key not in _OF_THE_END}
        reports[name]["exit_code"] = 0
    if latest and not node_folders(run, latest):  # who began the restart has not yet joined
        reports[""] = {}
    return merged(list(reports.items()), over)


def _left(run: RunFolder, reports: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Nodes that were told to end, while others began another attempt of the job without them: how their parts ended is
    not how the job did."""
    told = {name for name, report in reports.items() if report.get("interrupted")}
    if not told or len(told) == len(reports):
        return set()
    owners = nodes_of_ranks(run)
    places = {node.name: _logs_of(run, node) for node in node_folders(run)}
    last = last_generation([places.get(owner, run.ranks) / name for name, owner in owners.items()])
    return told & set(owners.values()) - {owners[folder.name] for folder in last}


def _logs_of(run: RunFolder, node: NodeFolder) -> Path:
    """Where the logs of its ranks can be read from here."""
    local = _if_whole(lambda: node.local, None, [])
    return local.ranks if local is not None and local.is_of(run.path, node.name) else run.ranks


def _moved(report: dict[str, Any], ahead_ns: int) -> dict[str, Any]:
    """The report by another clock, wherever in it a time stands."""

    def moved(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: moved(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [moved(one) for one in value]
        is_time = name.endswith("wall_ns") and isinstance(value, int) and value
        return value - ahead_ns if is_time else value

    return {key: moved(value, key) for key, value in report.items()} if ahead_ns else report


def merged(reports: Sequence[tuple[str, dict[str, Any]]], over: Set[str] = frozenset()) -> dict[str, Any]:
    """Of each node its name and its report. An incident says on which node it was seen. over: nodes whose part of the
    job was over before. `interrupted` has the node that was told first, and `of_some` where others were not."""
    whole: dict[str, Any] = {}
    for name in ("capsules", "evidence", "deaths", "how_they_died"):
        lists = [report.get(name) for _, report in reports]
        whole[name] = [one for some in lists if isinstance(some, list) for one in some]
    whole["incidents"] = [
        {**one, "node": node} if isinstance(one, dict) else one
        for node, report in reports
        for one in report.get("incidents", [])
    ]
    whole["problems"] = [f"node {node}: {text}" for node, report in reports for text in report.get("problems", [])]
    told = [
        {**one, "node": node}
        for node, report in reports
        if isinstance(one := report.get("interrupted"), dict) and _wall_ns(one)
    ]
    whole["interrupted"] = min(told, key=_wall_ns, default={})
    if 0 < len(told) < len({name for name, _ in reports} - over):
        whole["interrupted"] = {**whole["interrupted"], "of_some": True}
    whole["deaths"] = _in_order(whole["deaths"], whole["how_they_died"])
    if reports and all("exit_code" in report for _, report in reports):
        codes = [report["exit_code"] for _, report in reports]
        whole["exit_code"] = next((code for code in codes if code), 0)
        whole["ended_wall_ns"] = max(report.get("ended_wall_ns", 0) for _, report in reports)
    return whole


def _wall_ns(seen: Mapping[str, Any]) -> int:
    value = seen.get("wall_ns", 0)
    return value if isinstance(value, int) else 0


def _in_order(deaths: Sequence[str], how: Sequence[Any]) -> list[str]:
    """By the time at which each was seen."""
    seen = {str(one.get("rank")): _wall_ns(one) for one in how if isinstance(one, dict)}
    return sorted(deaths, key=lambda name: (seen.get(name, 0), attempt_of(name)))
