"""Which ranks ran together in a job that its launcher restarts.

torchrun restarts all ranks together, but counts that on each node by itself: on the node where a rank failed, not on
the others. So the attempts of ranks that ran together may have different numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prismdbg.capsule.log.reader import event_segments
from prismdbg.capsule.rank_json import variables_of
from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.run_folder import attempt_of, rank_of, read_if_whole
from prismdbg.log.columns import LAST_BYTES, read_columns


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
    began_ns = max(map(_started_ns, last))
    world_size = max(int(read_if_whole(folder / "rank.json").get("world_size", 0)) for folder in last)
    others = [folder for rank, folder in newest.items() if rank < world_size and folder not in last]
    if not others or not began_ns:
        return last
    places = {meeting_place(folder) for folder in last}
    others = [one for one in others if meeting_place(one) in places and not _is_replaced(one, folders)]
    unread = [one for one in others if not event_segments(one)]
    ran_with = [one for one in others if one not in unread and _last_word_ns(one) >= began_ns]
    if unread and (ended_ns := _ended_before_ns(last, folders)) is not None:
        ran_with += [one for one in unread if _started_ns(one) > ended_ns]
    return sorted([*last, *ran_with], key=rank_of)


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
    environment = variables_of(read_if_whole(folder / "rank.json"))
    port = environment.get("MASTER_PORT", "")
    return f"{environment.get('MASTER_ADDR', '')}:{port}" if port else ""


def _is_replaced(folder: Path, folders: Iterable[Path]) -> bool:
    """Whether the agent of torchrun that started this rank has started another one since."""
    rank = read_if_whole(folder / "rank.json")
    others = (read_if_whole(other / "rank.json") for other in folders)
    return "agent" in rank and any(_is_of_the_same(rank, other) and _began(other) > _began(rank) for other in others)


def _is_of_the_same(rank: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(rank.get(name) == other.get(name) for name in ("agent", "pid_namespace", "boot_id"))


def _began(rank: Mapping[str, Any]) -> int:
    worker = rank.get("worker")
    return int(worker[-1]) if worker else 0


def _started_ns(folder: Path) -> int:
    return int(read_if_whole(folder / "rank.json").get("started_ns", 0))


def _last_word_ns(folder: Path) -> int:
    """By the clock of its node; 0 where its log cannot be read."""
    try:
        log = read_columns(folder, LAST_BYTES)
    except CapsuleError:
        return 0
    last_ns = max(int(log.begun_ns.max(initial=0)), int(log.ended_ns.max(initial=0)))
    return max([last_ns, *(note.time_ns for note in log.notes)]) + log.wall_offset_ns
