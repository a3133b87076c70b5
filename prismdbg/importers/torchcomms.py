"""Dumps of torchcomms' Flight Recorder hook in the form of c10d's.

The fields have c10d's names (dump version 2.10), and some mean something else. `collective_seq_id` counts all calls of
a rank, whatever their communicator, from 0. A call that is over is `retired`; its state says so only on some GPUs.
Sends and receives count as collectives and do not name their peer. A group's description is the backend. The timeout is
the same for all calls.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prismdbg.importers.dump_form import Dump, Entry
from prismdbg.model.plurals import counted

_MESSAGES = frozenset({"send", "recv", "batch_op_issue"})
_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """What the dump of one rank has. `calls`: by group, in order, without messages. `numbers`: of all calls, rising.
    `waits_in`: the last call, if that is a message which is not over."""

    calls: Mapping[str, Sequence[Entry]]
    numbers: Sequence[int]
    messages: int
    waits_in: Entry | None

    @property
    def is_whole(self) -> bool:
        return self.numbers == list(range(len(self.numbers)))

    @property
    def is_counted_alike(self) -> bool:
        """Whether its numbers may be those of other ranks, too: messages are not the same for all."""
        return bool(self.numbers) and not self.messages

    @property
    def settled(self) -> int:
        """The last number up to which all calls are over: what a rank calls after that may be its error."""
        open_calls = (_number(call) for calls in self.calls.values() for call in calls if not _is_over(call))
        return min(open_calls, default=self.numbers[-1] + 1) - 1

    def numbers_in(self, group: str, since: int, until: int) -> list[int]:
        return [number for call in self.calls.get(group, ()) if since <= (number := _number(call)) <= until]


def as_c10d(dumps: Mapping[int, Dump]) -> tuple[dict[int, Dump], tuple[str, ...]]:
    """The same dumps, those of torchcomms in c10d's form; and sentences on what these do not say. Groups have names of
    their own."""
    theirs = {rank: dump for rank, dump in dumps.items() if _is_torchcomms(dump)}
    if not any(dump["entries"] for dump in theirs.values()):
        return dict(dumps), ()
    windows = {rank: _window(dump["entries"]) for rank, dump in theirs.items()}
    counts = {name: _counted_by(name, ranks, windows) for name, ranks in _ranks_by_group(windows, theirs).items()}
    rewritten = {
        rank: Dump(
            version=dump["version"],
            entries=list(_entries(windows[rank], counts)),
            pg_config={name: config | {"desc": ""} for name, config in dump.get("pg_config", {}).items()},
        )
        for rank, dump in theirs.items()
    }
    return {rank: rewritten.get(rank, dump) for rank, dump in dumps.items()}, tuple(_gaps(windows, counts))


def _is_torchcomms(dump: Dump) -> bool:
    """A group's description is its backend there, with which the titles of its calls begin."""
    return all(entry["profiling_name"].startswith(f"{entry['process_group'][1]}:") for entry in dump["entries"])


def _window(entries: Iterable[Entry]) -> _Window:
    ordered = sorted(entries, key=_number)
    calls: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in ordered:
        if not _is_message(entry):
            calls[entry["process_group"][0]].append(entry)
    last = ordered[-1] if ordered else None
    return _Window(
        calls=calls,
        numbers=[_number(entry) for entry in ordered],
        messages=sum(map(_is_message, ordered)),
        waits_in=last if last is not None and _is_message(last) and not _is_over(last) else None,
    )


def _ranks_by_group(windows: Mapping[int, _Window], dumps: Mapping[int, Dump]) -> dict[str, list[int]]:
    """Those with a dump that are members, or called something in it."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for rank, window in windows.items():
        for name in dumps[rank].get("pg_config", {}).keys() | window.calls.keys():
            found[name].append(rank)
    return found


def _counted_by(name: str, ranks: Sequence[int], windows: Mapping[int, _Window]) -> str:
    """What tells which calls of its members are one: their "order" in the group, torchcomms' "number", or nothing."""
    of_group = [windows[rank] for rank in ranks]
    if all(window.is_whole for window in of_group):
        return "order"
    if not all(window.is_counted_alike for window in of_group):
        return ""
    since, until = max(window.numbers[0] for window in of_group), min(window.settled for window in of_group)
    first, *others = (window.numbers_in(name, since, until) for window in of_group)
    return "number" if first and all(other == first for other in others) else ""


def _entries(window: _Window, counts: Mapping[str, str]) -> Iterator[Entry]:
    for name, calls in window.calls.items():
        for nth, call in enumerate(calls):
            if counts[name]:
                yield _entry(call, name, nth if counts[name] == "order" else _number(call))


def _entry(call: Entry, name: str, number: int) -> Entry:
    return {
        **call,
        "record_id": _number(call),
        "process_group": [name, ""],
        "collective_seq_id": number,
        "state": "completed" if _is_over(call) else call["state"],
        "time_discovered_completed_ns": _ended_ns(call),
        "timeout_ms": 0,
    }


def _ended_ns(call: Entry) -> int | None:
    """Without an event of the GPU, torchcomms gives the time until its host thread noted the end as the duration."""
    if not _is_over(call):
        return None
    told, duration_ms = call.get("time_discovered_completed_ns"), call.get("duration_ms", 0.0)
    return told or (call["time_created_ns"] + round(duration_ms * 1e6) if 0 < duration_ms < 1e9 else None)


def _is_over(call: Entry) -> bool:
    return call.get("retired", False) or call["state"] == "completed"


def _number(call: Entry) -> int:
    return call["collective_seq_id"]


def _is_message(call: Entry) -> bool:
    return _op(call) in _MESSAGES


def _op(call: Entry) -> str:
    return call["profiling_name"].rpartition(":")[2]


def _gaps(windows: Mapping[int, _Window], counts: Mapping[str, str]) -> Iterator[str]:
    if messages := sum(window.messages for window in windows.values()):
        left_out = counted(messages, "send or receive", "sends and receives")
        yield f"{left_out} left out: torchcomms does not record the other rank"
    for rank, window in sorted(windows.items())[:_SHOWN]:
        if (call := window.waits_in) is not None:
            yield f"the last call of rank {rank} is a {_op(call)} in group {call['process_group'][0]!r}, and not over"
    if by_number := sorted(name for name, by in counts.items() if by == "number"):
        yield (
            f"the first calls of group {_some(by_number)} are not in the dumps: calls are compared by torchcomms' "
            "number, which is right if all members made equally many calls before, in all groups together"
        )
    calls = Counter(name for each in windows.values() for name, found in each.calls.items() for _ in found)
    if unknown := sorted(name for name in calls if not counts[name]):
        left_out = counted(sum(calls[name] for name in unknown), "call")
        yield (
            f"{left_out} of group {_some(unknown)} left out: torchcomms does not number a group's calls, and the dumps "
            "lack the first"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:_SHOWN])
