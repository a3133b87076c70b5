"""When a job was told to end: by Ctrl-C, `kill`, its scheduler. How its ranks ended then says nothing of a cause."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.manifest import IncidentKind
from prismdbg.diagnosis.failures import has_failed
from prismdbg.diagnosis.outlived import was_outlived
from prismdbg.errors import INTERRUPTED
from prismdbg.jobs.record.deaths import ASKED, Death
from prismdbg.jobs.storage.run_files import whole_incidents
from prismdbg.jobs.storage.run_folder import attempt_of
from prismdbg.log.rank_log import columns_of

TOGETHER_NS = 25_000_000  # a launcher that is told to end ends its ranks at once; one that lost a rank looks first
_FOLDER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")  # of a rank's log
GOES_ON_NS = 60_000_000_000  # launchers kill after half a minute what has not ended
SLACK_NS = 1_000_000_000  # a terminal's Ctrl-C reaches the ranks by itself, perhaps before the supervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """`failed`: before that, as `has_failed` says, which is no sign that it was told to end."""

    rank: int
    wall_ns: int
    signal: int | None  # 0: it ended by itself, None: not known
    failed: bool = False


def interrupted_at(
    supervisor: Mapping[str, Any], logs: Mapping[int, RankLog], attempt: int, apart: Set[int] = frozenset()
) -> int | None:
    """Nanoseconds since 1970; None where the job was not told to end.

    The supervisor knows what reached itself; a death that it has reported before is none of these ends. Where the
    launcher alone was told, its ranks ended first and all of them of that signal; a rank that was ended alone is one
    that failed, and one whose end is not known may be. That a rank lost a peer does not make it one of those that were
    told. Nor was a job that went on without a node which was told.

    apart: ranks whose times cannot be compared with those of the others. One of them that failed may be the cause.
    """
    ends = sorted(_ends(supervisor, logs, attempt), key=lambda end: end.wall_ns)
    if told := _told(supervisor, logs, may_go_on=_has(supervisor, "of_some")):
        dead = reported_dead(supervisor, attempt)
        deaths = [(rank, death) for rank, death in deaths_of(supervisor, attempt).items() if rank not in dead | apart]
        asked = [death.wall_ns for _, death in deaths if death.signal in ASKED]
        asked += [end.wall_ns for end in ends if end.signal == signal.SIGINT and end.rank not in dead | apart]
        return told_since(told, asked)
    if not ends or any(end.signal is None for end in ends):
        return None
    if any(end.rank in apart and (end.failed or end.signal not in (0, *ASKED)) for end in ends):
        return None
    first, others = ends[0], ends[1:]
    told_others = [end for end in others if not end.failed]
    together = [end for end in told_others if end.wall_ns - first.wall_ns <= TOGETHER_NS]
    if first.failed or first.signal not in ASKED or any(end.signal not in (0, *ASKED) for end in together):
        return None
    if first.signal == signal.SIGINT:  # a rank takes its time to hear of it
        alone = any(end.signal == signal.SIGTERM for end in others) or bool(others and not told_others)
    else:
        alone = bool(others) and not together
    return None if alone else first.wall_ns


def perhaps_alone(supervisor: Mapping[str, Any], deaths: Mapping[int, Death]) -> int | None:
    """The rank that perhaps was ended alone where `interrupted_at` takes the job for one that was told: the supervisor
    was not, and all others were seen alive, with no such signal, after that rank was gone. Some launchers end the
    others that soon."""
    first = min(deaths, key=lambda rank: deaths[rank].wall_ns, default=None)
    if first is None or len(deaths) < 2 or _number(supervisor.get("interrupted"), "wall_ns"):
        return None
    if deaths[first].signal not in (signal.SIGTERM, signal.SIGHUP):
        return None
    others = (death for rank, death in deaths.items() if rank != first)
    return first if all(death.alive_wall_ns >= deaths[first].wall_ns for death in others) else None


def interrupted_while_running(
    supervisor: Mapping[str, Any], logs: Mapping[int, RankLog], attempt: int, apart: Set[int] = frozenset()
) -> int | None:
    """As `interrupted_at`, of a job with ranks that are alive: the supervisor has to know it. None also where the ranks
    go on: they take no notice of the signal."""
    return interrupted_at(supervisor, logs, attempt, apart) if _told(supervisor, logs, may_go_on=True) else None


def _told(supervisor: Mapping[str, Any], logs: Mapping[int, RankLog], *, may_go_on: bool) -> int | None:
    """When the supervisor was told to end. None also where the ranks began after that, in another attempt. may_go_on:
    and where they went on for long."""
    if not (told := _number(supervisor.get("interrupted"), "wall_ns")):
        return None
    begun = [columns_of(log).begun_ns + log.wall_offset_ns for log in logs.values()]
    spans = [(int(of_rank.min()), int(of_rank.max())) for of_rank in begun if len(of_rank)]
    is_of_another = bool(spans) and min(first for first, _ in spans) > told
    goes_on = may_go_on and any(last > told + GOES_ON_NS for _, last in spans)
    return None if is_of_another or goes_on else told


def reported_dead(supervisor: Mapping[str, Any], attempt: int) -> set[int]:
    """Ranks whose end the supervisor has reported as a death, before it was told itself."""
    lost = [one for one in whole_incidents(supervisor) if one.get("kind") == IncidentKind.LOST]
    return {int(rank) for one in lost if one.get("attempt", 0) == attempt for rank in one.get("ranks", ())}


def told_together(
    deaths: Sequence[Death],
    now_ns: int,
    ends: Mapping[str, int] | None = None,
    has_failed: Callable[[str], bool] = lambda _: False,
) -> frozenset[str]:
    """Log folders of ranks that were told to end together with others: by their launcher, which was told itself. Also
    those of which that is not yet known. ends: since when others end that are not dead yet. has_failed: of a rank's
    log, as the function of that name says."""

    def is_told(death: Death) -> bool:
        others = [(other.name, other.wall_ns) for other in deaths if other is not death]
        others += [(name, since_ns) for name, since_ns in (ends or {}).items() if name != death.name]
        near = (name for name, other_ns in others if abs(other_ns - death.wall_ns) <= TOGETHER_NS)
        return now_ns - death.wall_ns <= TOGETHER_NS or any(not has_failed(name) for name in near)

    return frozenset(death.name for death in deaths if death.signal in ASKED and is_told(death))


def told_since(told_ns: int, seen_ns: Iterable[int]) -> int:
    """When the job was told to end, at the earliest: what happened before has another cause.

    told_ns: when the supervisor got the signal. seen_ns: when ranks ended of such a signal: a terminal and some
    schedulers send it to each process themselves, and it may reach a rank first.
    """
    return min((told_ns, *(ns for ns in seen_ns if told_ns - SLACK_NS <= ns))) - TOGETHER_NS


def deaths_of(supervisor: Mapping[str, Any], attempt: int) -> dict[int, Death]:
    """By rank, as far as the supervisor saw it, in its order."""
    found: dict[int, Death] = {}
    deaths = supervisor.get("how_they_died", [])
    for death in deaths if isinstance(deaths, list) else ():  # a damaged one hides no other
        name = death.get("rank") if isinstance(death, Mapping) else None
        wall_ns = _number(death, "wall_ns")
        if wall_ns and isinstance(name, str) and _FOLDER.fullmatch(name) and attempt_of(name) == attempt:
            found[int(name.partition(".")[0])] = Death(
                name=name,
                wall_ns=wall_ns,
                signal=_number(death, "signal"),
                code=_number(death, "code"),
                alive_wall_ns=_number(death, "alive_wall_ns") or 0,
            )
    return found


def _ends(supervisor: Mapping[str, Any], logs: Mapping[int, RankLog], attempt: int) -> Iterator[_End]:
    """The first that is known of each rank's end."""
    deaths = deaths_of(supervisor, attempt)
    for rank, log in logs.items():
        columns, death = columns_of(log), deaths.get(rank)
        said = [note for note in log.notes if note.kind in ("exit", "incident") and not note.data.get("thread")]
        said = [note for note in said if not was_outlived(columns, note)]
        if said:
            first = min(said, key=lambda note: note.time_ns)
            was_told = first.kind == "exit" and first.data.get("code") == INTERRUPTED
            failed = not was_told and has_failed(columns)
            by_launcher = failed and death is not None and death.signal == signal.SIGTERM
            yield _End(
                rank=rank,
                wall_ns=first.time_ns + log.wall_offset_ns,
                signal=int(signal.SIGINT if was_told else signal.SIGTERM if by_launcher else 0),
                failed=failed,
            )
        elif death is not None:
            unknown = death.signal == 0 and death.code != 0  # by itself, and without a word: it may be the cause
            yield _End(
                rank=rank,
                wall_ns=death.wall_ns,
                signal=None if unknown else death.signal,
                failed=death.signal != signal.SIGINT and has_failed(columns),
            )


def _has(supervisor: Mapping[str, Any], name: str) -> bool:
    told = supervisor.get("interrupted")
    return isinstance(told, Mapping) and bool(told.get(name))


def _number(data: object, name: str) -> int | None:
    value = data.get(name) if isinstance(data, Mapping) else None
    return value if isinstance(value, int) else None
