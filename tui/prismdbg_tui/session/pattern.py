"""The words that are typed after `/` and `&`. All of them must match. Decided for all rows at once.

all_reduce        part of the operator, the group's name, the source file:line, or the moment
nan  failed  open  synthesized    its state; synthesized: no real peer answered it
async  p2p        how it was called
>1MiB  <4KiB      its bytes;     >5ms  <100us      how long it took
12.3  12.         its moment; its step
-word             everything that does not match word
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from prismdbg.errors import UsageError
from prismdbg.model.durations import MICROSECONDS
from prismdbg.model.sizes import unit_bytes
from prismdbg_tui.timeline.recording import Recording

Bools = NDArray[np.bool_]

_LIMIT = re.compile(r"([<>])([0-9]+(?:\.[0-9]+)?)([a-zµ]+)", re.IGNORECASE)
_MOMENT = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})?")
_NS = {"ns": 1, "us": 10**3, MICROSECONDS: 10**3, "ms": 10**6, "s": 10**9}
MAX_PATTERN = 500


def rows_of(recording: Recording, pattern: str) -> NDArray[np.int64]:
    """The rows that fit, in order; `UsageError` says what cannot be read."""
    if len(pattern) > MAX_PATTERN:
        raise UsageError(f"a pattern has at most {MAX_PATTERN} characters")
    mask = np.ones(len(recording), dtype=np.bool_)
    for word in pattern.split():
        mask &= ~_fits(recording, word[1:]) if word[0] == "-" and len(word) > 1 else _fits(recording, word)
    return np.flatnonzero(mask)


def _fits(recording: Recording, word: str) -> Bools:
    columns = recording.columns
    if (found := _LIMIT.fullmatch(word)) and (unit_bytes(found[3]) or found[3].lower() in _NS):
        return _limit(recording, found)
    if word[0] in "<>":
        raise UsageError(f"{word!r} is not a limit", hint="write >1MiB, <4KiB, >5ms or <100us")
    if found := _MOMENT.fullmatch(word):
        step, nth = int(found[1]), found[2]
        mask: Bools = columns.step == step
        return mask & (columns.nth == int(nth)) if nth else mask
    rows = np.arange(len(recording))
    states = {
        "nan": (columns.sent_nonfinite | columns.received_nonfinite) & (rows < recording.made_up_from),
        "synthesized": columns.synthesized,
        "failed": columns.failed,
        "open": columns.ended_ns < 0,
        "async": columns.is_async,
        "p2p": columns.is_p2p,
    }
    return states[word.lower()] if word.lower() in states else _text(recording, word.lower())


def _limit(recording: Recording, found: re.Match[str]) -> Bools:
    unit, columns = found[3].lower(), recording.columns
    ended = columns.ended_ns >= 0
    of_size = unit_bytes(unit)
    values = columns.size_bytes if of_size else columns.ended_ns - columns.begun_ns
    limit = float(found[2]) * (of_size or _NS[unit])
    mask: Bools = values > limit if found[1] == ">" else values < limit
    return mask if of_size else mask & ended


def _text(recording: Recording, word: str) -> Bools:
    """Few texts, many rows: the texts are looked at, the rows follow by number."""
    columns = recording.columns
    ops = [code for code, label in recording.labels.items() if word in label]
    groups = [
        number
        for number, group in enumerate(recording.rank_sets.groups)
        if word in group.title.lower() or word in group.desc.lower()
    ]
    stacks = [int(stack) for stack in np.unique(columns.stack) if word in recording.source_of_stack(int(stack)).lower()]
    return np.isin(columns.op, ops) | np.isin(recording.rank_sets.group_of, groups) | np.isin(columns.stack, stacks)
