"""How far a replay is, asked of the rank each second where somebody looks on."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property

import numpy as np

from prismdbg.errors import RankLost, WaitTimeout
from prismdbg.jobs.replay.replay import LiveReplay
from prismdbg.log.columns import LogColumns
from prismdbg.log.rank_log import columns_of, read_log
from prismdbg.model.meanwhile import Tell, unheard
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentError
from prismdbg.protocol.wire import InvalidMessage, Message

LOOK_S = 1.0
ANSWER_BOUND_S = 5.0


class ReplayProgress:
    """`until`: where the replay stops; None for the end moment."""

    def __init__(
        self, live: LiveReplay, until: Moment | None, tell: Tell, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._live, self._until, self._tell, self._now = live, until, tell, now
        self._looked = now()

    def next_event(self, timeout_s: float) -> Message:
        """Of the rank. `WaitTimeout` where none comes in that time."""
        left_s = timeout_s
        while True:
            began = self._now()
            self._look()
            piece_s = min(left_s, LOOK_S)
            try:
                return self._live.client.next_event(piece_s, "the replayed rank")
            except WaitTimeout:
                left_s -= max(piece_s, self._now() - began)
                if left_s <= 0:
                    raise

    def _look(self) -> None:
        if self._tell is unheard or self._now() - self._looked < LOOK_S:
            return
        try:
            answer = self._live.client.ask("progress", timeout_s=ANSWER_BOUND_S)
            self._tell(self._text(Moment.parse(str(answer["moment"]))))
        except InvalidMessage:
            raise
        except (WaitTimeout, AgentError, RankLost):
            pass  # native code may hold Python's lock; and what a rank told before it ended is still to be taken
        self._looked = self._now()

    def _text(self, reached: Moment) -> str:
        first, last = self._rows
        done = min(max(_rows_to(self._columns, reached), first), last) - first
        return f"replaying: collective {done:,} of {last - first:,}, at {reached}"

    @cached_property
    def _columns(self) -> LogColumns:
        return columns_of(read_log(self._live.capsule.log))

    @cached_property
    def _rows(self) -> tuple[int, int]:
        """The first to come, and the one after the last."""
        ids = self._columns.record_id
        first = int(np.searchsorted(ids, self._live.first_record))
        last = int(np.searchsorted(ids, self._live.end_record, side="right"))
        return first, max(last if self._until is None else min(last, _rows_to(self._columns, self._until)), first)


def _rows_to(columns: LogColumns, moment: Moment) -> int:
    """How many there are up to `moment`."""
    return columns.row_at(Moment(moment.step, moment.collective + 1))
