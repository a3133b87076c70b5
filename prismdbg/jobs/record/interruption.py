"""When a job was told to end: by Ctrl-C, `kill`, its scheduler. How its ranks ended then says nothing of a cause."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prismdbg.capsule.log.events import RankLog
from prismdbg.errors import INTERRUPTED
from prismdbg.jobs.record.deaths import ASKED, Death
from prismdbg.jobs.storage.run_folder import attempt_of

TOGETHER_NS = 25_000_000  # a launcher that is told to end ends its ranks at once; one that lost a rank looks first
_FOLDER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")  # of a rank's log
SLACK_NS = 1_000_000_000  # a terminal's Ctrl-C reaches the ranks by itself, perhaps before the supervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    rank: int
    wall_ns: int
    signal: int | None  # 0: it ended by itself, None: not known


def interrupted_at(supervisor: Mapping[str, Any], logs: Mapping[int, RankLog], attempt: int) -> int | None:
    """Nanoseconds since 1970; None where the job was not told to end.

    The supervisor knows what reached itself. Where the launcher alone was told, its ranks ended first and all of them
    of that signal; a rank that was ended alone is one that failed, and one whose end is not known may be.
    """
    ends = sorted(_ends(supervisor, logs, attempt), key=lambda end: end.wall_ns)
    if told := _number(supervisor.get("interrupted"), "wall_ns"):
        exits = [end.wall_ns for end in ends if end.signal == signal.SIGINT and told - SLACK_NS <= end.wall_ns < told]
        return min(exits, default=told)
    if not ends or any(end.signal is None for end in ends):
        return None
    first, others = ends[0], ends[1:]
    together = [end.signal for end in ends if end.wall_ns - first.wall_ns <= TOGETHER_NS]
    number = first.signal
    if number not in ASKED or any(other not in (0, *ASKED) for other in together):
        return None
    if number == signal.SIGINT:
        alone = any(end.signal == signal.SIGTERM for end in others)
    else:
        alone = bool(others) and others[0].wall_ns - first.wall_ns > TOGETHER_NS
    return None if alone else first.wall_ns


def told_together(deaths: Sequence[Death], now_ns: int, ends: Mapping[str, int] | None = None) -> frozenset[str]:
    """Log folders of ranks that were told to end together with others: by their launcher, which was told itself. Also
    those of which that is not yet known. ends: since when others end that are not dead yet."""

    def is_told(death: Death) -> bool:
        others = [other.wall_ns for other in deaths if other is not death]
        others += [since_ns for name, since_ns in (ends or {}).items() if name != death.name]
        near = any(abs(other_ns - death.wall_ns) <= TOGETHER_NS for other_ns in others)
        return death.signal in ASKED and (near or now_ns - death.wall_ns <= TOGETHER_NS)

    return frozenset(death.name for death in deaths if is_told(death))


def told_since(told_ns: int, seen_ns: Iterable[int]) -> int:
    """When the job was told to end, at the earliest: what happened before has another cause.

    told_ns: when the supervisor got the signal. seen_ns: when ranks ended of such a signal: a terminal and some
    schedulers send it to each process themselves, and it may reach a rank first.
    """
    first_ns = min((ns for ns in seen_ns if told_ns - SLACK_NS <= ns), default=told_ns)
    return min(first_ns, told_ns) - TOGETHER_NS


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
        said = [note for note in log.notes if note.kind in ("exit", "incident") and not note.data.get("thread")]
        if said:
            first = min(said, key=lambda note: note.time_ns)
            was_told = first.kind == "exit" and first.data.get("code") == INTERRUPTED
            number = int(signal.SIGINT) if was_told else 0
            yield _End(rank=rank, wall_ns=first.time_ns + log.wall_offset_ns, signal=number)
        elif rank in deaths:
            death = deaths[rank]
            failed = death.signal == 0 and death.code != 0  # by itself, and without a word: it may be the cause
            yield _End(rank=rank, wall_ns=death.wall_ns, signal=None if failed else death.signal)


def _number(data: object, name: str) -> int | None:
    value = data.get(name) if isinstance(data, Mapping) else None
    return value if isinstance(value, int) else None
