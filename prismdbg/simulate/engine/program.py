"""A class's entries as instructions for each of its streams: what is timed at once, and what must wait for what.

Computations between two communications become one run. A stream that only ever carries communication which its
issuer waits for at once is no stream of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from prismdbg.errors import UsageError
from prismdbg.simulate.graph.entries import FREE, Entries, Kind
from prismdbg.simulate.graph.mesh import Ints

Bools = NDArray[np.bool_]


class Step(IntEnum):
    """What an instruction does to its stream's clock; the number with it is an entry, of RUN a run."""

    RUN = 0  # computes
    HERE = 1  # communicates and waits for the end
    QUEUED = 2  # communicates, once posted and the stream is free
    LAUNCH = 3  # starts communication that has no stream; goes on
    POST = 4  # lets the communication's own stream have it; goes on
    JOIN = 5  # waits for the entry's end
    MARK = 6  # notes the entry's end for others


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """`steps`, `numbers`: one list a stream. joins: how often each entry is joined.

    runs: the entries of all runs one after the other; run i has those from run_starts[i] on. run_stream: where it runs.
    """

    steps: tuple[list[int], ...]
    numbers: tuple[list[int], ...]
    joins: list[int]
    runs: Ints
    run_starts: Ints
    run_stream: Ints
    ends_on: Ints  # the stream on whose clock each entry ends; FREE for none

    @property
    def places(self) -> dict[tuple[int, int], tuple[int, int]]:
        """(step, number) -> (stream, index), for all that stands there once."""
        return {
            (step, number): (stream, index)
            for stream, (steps, numbers) in enumerate(zip(self.steps, self.numbers, strict=True))
            for index, (step, number) in enumerate(zip(steps, numbers, strict=True))
            if step != Step.JOIN
        }

    def run_of(self, entry: int) -> int:
        where = np.flatnonzero(self.runs == entry)
        if not len(where):
            raise UsageError(f"entry {entry} is not a computation", hint="delay a computation")
        return int(np.searchsorted(self.run_starts, where[0], side="right")) - 1


def compile_class(entries: Entries) -> Program:
    here = _here(entries)
    numbers = np.arange(len(entries))
    queued = entries.communicates & ~here & (entries.stream != FREE)
    launched = entries.communicates & ~here & (entries.stream == FREE)
    ends_on = np.where(here, entries.issuer, entries.stream).astype(np.int64)
    waits = np.flatnonzero(entries.kind == Kind.WAIT)
    waits = waits[ends_on[entries.target[waits]] != entries.stream[waits]]
    blocked = numbers[queued & (entries.blocking == 1)]
    joined = np.concatenate([entries.target[waits], blocked])
    marked = np.unique(joined[~(queued | launched)[joined]])
    rows = np.concatenate(
        [
            _rows(Step.RUN, entries.stream, numbers[entries.kind == Kind.COMPUTE]),
            _rows(Step.HERE, entries.issuer, numbers[here]),
            _rows(Step.POST, entries.issuer, numbers[queued]),
            _rows(Step.QUEUED, entries.stream, numbers[queued]),
            _rows(Step.LAUNCH, entries.issuer, numbers[launched]),
            _rows(Step.JOIN, entries.stream, waits, entries.target[waits]),
            _rows(Step.JOIN, entries.issuer, blocked, after=1),
            _rows(Step.MARK, ends_on, marked, after=2),
        ],
        axis=1,
    )
    rows = rows[:, np.lexsort((rows[1], rows[0]))]
    return _folded(entries, rows, np.bincount(joined, minlength=len(entries)).tolist(), ends_on)


def _rows(step: Step, streams: NDArray[np.integer], entries: Ints, numbers: Ints | None = None, after: int = 0) -> Ints:
    """Columns: stream, place in it, step, number."""
    named = entries if numbers is None else numbers
    return np.stack([streams[entries].astype(np.int64), entries * 4 + after, np.full(len(entries), step), named])


def _here(entries: Entries) -> Bools:
    """Communication that holds its issuer and no other stream."""
    talks, blocking = entries.communicates, entries.blocking == 1
    here: Bools = talks & ((entries.stream == entries.issuer) | ((entries.stream == FREE) & blocking))
    for stream in np.unique(entries.stream[talks & ~here]):
        on = entries.stream == stream
        has_one_issuer = len(np.unique(entries.issuer[on])) == 1
        issues = bool((talks & (entries.issuer == stream)).any())
        if stream != FREE and has_one_issuer and not issues and (talks & blocking)[on].all():
            here |= on
    return here


def _folded(entries: Entries, rows: Ints, joins: list[int], ends_on: Ints) -> Program:
    """Neighbouring RUNs of a stream as one."""
    is_run = rows[2] == Step.RUN
    continues = np.zeros(rows.shape[1], dtype=bool)
    continues[1:] = is_run[1:] & is_run[:-1] & (rows[0, 1:] == rows[0, :-1])
    runs = rows[3, is_run]
    first = (is_run & ~continues)[is_run]
    kept = rows[:, ~continues]
    is_run = kept[2] == Step.RUN
    kept[3, is_run] = np.arange(np.count_nonzero(is_run))
    streams = [kept[:, kept[0] == stream] for stream in range(len(entries.streams))]
    return Program(
        steps=tuple(stream[2].tolist() for stream in streams),
        numbers=tuple(stream[3].tolist() for stream in streams),
        joins=joins,
        runs=runs,
        run_starts=np.flatnonzero(first),
        run_stream=kept[0, is_run],
        ends_on=ends_on,
    )
