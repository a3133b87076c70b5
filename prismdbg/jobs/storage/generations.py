"""Which ranks ran together in a job that its launcher restarts.

torchrun restarts all ranks together, but counts that on each node by itself: on the node where a rank failed, not on
the others. So the attempts of ranks that ran together may have different numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from prismdbg.capsule.log.reader import event_segments
from prismdbg.capsule.rank_json import variables_of
from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.run_folder import attempt_of, rank_of, read_if_whole
from prismdbg.log.columns import LAST_BYTES, LogColumns, read_columns


def last_generation(folders: Sequence[Path]) -> list[Path]:
    """Log folders of the newest ranks, in rank order: those with the highest attempt, and of each other rank of that
    job the newest one, if it ran with them. A rank without any was not recorded. A log may be on a node that is lost:
    then only what the rank said of itself is here."""
    if not folders:
        return []
    attempt = max(attempt_of(folder.name) for folder in folders)
    last = [folder for folder in folders if attempt_of(folder.name) == attempt]
    newest = {rank_of(folder): folder for folder in sorted(folders, key=lambda one: attempt_of(one.name))}
    if len(newest) == len(last):
        return last
    about = {folder: read_if_whole(folder / "rank.json") for folder in last}
    described = list(about.values())
    began_ns = max(int(rank.get("started_ns", 0)) for rank in described)
    world_size = max(int(rank.get("world_size", 0)) for rank in described)
    others = [folder for rank, folder in newest.items() if rank < world_size and folder not in last]
    if not others or not began_ns:
        return last
    about |= {folder: read_if_whole(folder / "rank.json") for folder in folders if folder not in about}
    places = {_meeting_place(rank) for rank in described}
    latest = _latest_starts(about)
    ended_ns = cache(lambda: _ended_before_ns(last, folders))

    def ran_with_them(folder: Path) -> bool:
        rank = about[folder]
        if _meeting_place(rank) not in places:
            return False
        if not event_segments(folder):  # they are on its node
            before_ns = ended_ns()
            return before_ns is not None and int(rank.get("started_ns", 0)) > before_ns
        word_ns = _last_word_ns(folder)
        return word_ns >= began_ns and not ("agent" in rank and latest[_agent(rank)].follows(folder, rank, word_ns))

    return sorted([*last, *filter(ran_with_them, others)], key=rank_of)


def _ended_before_ns(last: Sequence[Path], folders: Iterable[Path]) -> int | None:
    """When the attempt before that of `last` was over, by what its logs say: 0 where these ranks had none, None where
    none of its logs is here."""
    ranks = {rank_of(folder) for folder in last}
    earlier = [folder for folder in folders if rank_of(folder) in ranks and folder not in last]
    newest = {rank_of(folder): folder for folder in sorted(earlier, key=lambda one: attempt_of(one.name))}
    words = [_last_word_ns(folder) for folder in newest.values()]
    return max(words, default=0) if any(words) or not words else None


def as_one_attempt(report: Mapping[str, Any], folders: Iterable[Path], among: Iterable[Path]) -> dict[str, Any]:
    """A supervisor's report as if all ranks of these log folders, which ran together, had the highest attempt of them.
    among: all that there are."""
    attempt = max((attempt_of(folder.name) for folder in folders), default=0)
    known = {folder.name for folder in among}
    names = {folder.name: f"{rank_of(folder)}.{attempt}" for folder in folders if attempt_of(folder.name) < attempt}
    names = {name: new for name, new in names.items() if new not in known}
    if not names:
        return dict(report)

    def died(entry: Any) -> Any:
        return {**entry, "rank": names.get(str(entry.get("rank")), entry.get("rank"))} if _is_map(entry) else entry

    def seen(entry: Any) -> Any:
        return {**entry, "attempt": attempt} if _is_map(entry) and _is_of(entry, names) else entry

    return {
        **report,
        "deaths": [names.get(str(name), name) for name in _list(report.get("deaths"))],
        "how_they_died": [died(entry) for entry in _list(report.get("how_they_died"))],
        "incidents": [seen(entry) for entry in _list(report.get("incidents"))],
    }


def _is_of(incident: Mapping[str, Any], names: Mapping[str, str]) -> bool:
    """Whether it is of ranks with one of these log folders."""
    attempt = incident.get("attempt", 0)
    ranks = _list(incident.get("ranks"))
    return bool(ranks) and all((f"{rank}.{attempt}" if attempt else str(rank)) in names for rank in ranks)


def _is_map(entry: object) -> bool:
    return isinstance(entry, Mapping)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def meeting_place(folder: Path) -> str:
    """Where the ranks of its job found each other; empty where that is not known."""
    return _meeting_place(read_if_whole(folder / "rank.json"))


def _meeting_place(rank: Mapping[str, Any]) -> str:
    environment = variables_of(rank)
    port = environment.get("MASTER_PORT", "")
    return f"{environment.get('MASTER_ADDR', '')}:{port}" if port else ""


@dataclass(frozen=True, order=True, slots=True)
class _Start:
    """Of a worker of torchrun. began: in clock ticks, by which workers that are started together differ, too."""

    began: int
    attempt: int
    started_ns: int

    def follows(self, folder: Path, rank: Mapping[str, Any], last_word_ns: int) -> bool:
        """Whether the agent had ended that rank by then."""
        is_later = self.attempt > attempt_of(folder.name) or self.started_ns > last_word_ns
        return self.began > _began(rank) and is_later


def _latest_starts(about: Mapping[Path, Mapping[str, Any]]) -> dict[str, _Start]:
    """Of each agent of torchrun."""
    found: dict[str, _Start] = {}
    for folder, rank in about.items():
        start = _Start(_began(rank), attempt_of(folder.name), int(rank.get("started_ns", 0)))
        found[_agent(rank)] = max(found.get(_agent(rank), start), start)
    return found


def _agent(rank: Mapping[str, Any]) -> str:
    """Which process that was, of which machine."""
    return repr([rank.get(name) for name in ("agent", "pid_namespace", "boot_id")])


def _began(rank: Mapping[str, Any]) -> int:
    worker = rank.get("worker")
    return int(worker[-1]) if worker else 0


def _last_word_ns(folder: Path) -> int:
    """0 where its log cannot be read."""
    try:
        return last_ns(read_columns(folder, LAST_BYTES))
    except CapsuleError:
        return 0


def last_ns(log: LogColumns) -> int:
    """When it last says something, by the clock of its node."""
    call_ns = max(int(log.begun_ns.max(initial=0)), int(log.ended_ns.max(initial=0)))
    return max([call_ns, *(note.time_ns for note in log.notes)]) + log.wall_offset_ns
