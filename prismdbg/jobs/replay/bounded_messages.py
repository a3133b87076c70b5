"""What is kept of what a replayed rank tells: what counts, and for people the first of it. Bounded in any case."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from prismdbg.log.rank_log import read_log
from prismdbg.model.collective import State
from prismdbg.model.plurals import counted
from prismdbg.protocol.wire import Message

MAX_SHOWN, MAX_SHOWN_BYTES = 1000, 4 << 20
MAX_NOTES, MAX_NOTE = 100, 2000


class Shown:
    """The first messages of a kind; of the rest their number."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.left_out = 0
        self._bytes = 0

    def add(self, message: Message) -> None:
        if len(self.messages) < MAX_SHOWN and (size := len(json.dumps(message))) + self._bytes <= MAX_SHOWN_BYTES:
            self.messages.append(message)
            self._bytes += size
        else:
            self.left_out += 1

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)


class Said:
    """The rank's notes, as lines."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._left_out = 0

    def add(self, text: str) -> None:
        if len(self._lines) < MAX_NOTES:
            self._lines.append(text[:MAX_NOTE])
        else:
            self._left_out += 1

    @property
    def lines(self) -> list[str]:
        more = [f"{counted(self._left_out, 'further note')} of the rank left out"] if self._left_out else []
        return self._lines + more


class Received:
    """The collectives to which the recorded rank had received an answer: what it never received it did not go by."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def has(self, call: Message) -> bool:
        """What was in flight at the start has no identity."""
        return call.get("identity", call.get("record_id")) in self._complete

    @cached_property
    def _complete(self) -> frozenset[object]:
        records = (record for record in read_log(self._log).collectives if record.state is not State.SCHEDULED)
        return frozenset(key for record in records for key in (record.record_id, str(record.identity)))
