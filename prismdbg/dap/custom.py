"""Requests that the protocol does not have: the timeline of the rank's collectives, and its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prismdbg.dap.arguments import Arguments
from prismdbg.dap.motion import Motion
from prismdbg.dap.recorded import Recorded
from prismdbg.debugger.debugger import Debugger
from prismdbg.errors import UsageError
from prismdbg.model.collective import Collective
from prismdbg.render.answer_text import answer_text
from prismdbg.session import answers

MOST_CALLS = 1000

Json = dict[str, Any]


class Custom:
    def __init__(self, recorded: Recorded, debugger: Debugger, motion: Motion) -> None:
        self._recorded, self._debugger, self._motion = recorded, debugger, motion

    def requests(self) -> dict[str, Callable[[Arguments], Json]]:
        return {"prismdbgTimeline": self._timeline, "prismdbgMemory": self._memory}

    def _timeline(self, arguments: Arguments) -> Json:
        """The recorded collectives from number `start` on, `count` of them."""
        start, count = arguments.number("start", 0), arguments.number("count", MOST_CALLS, most=MOST_CALLS)
        return {
            "collectives": [self._call(record) for record in self._recorded.calls[start : start + count]],
            "total": len(self._recorded.calls),
            "here": str(self._debugger.session.moment),
            "checkpoints": [
                {"number": kept.number, "moment": str(kept.moment)} for kept in self._debugger.driver.travel.checkpoints
            ],
        }

    def _call(self, record: Collective) -> Json:
        return {
            "moment": str(record.moment),
            "op": record.name,
            "group": self._recorded.group_title(record.group),
            "state": str(record.state),
            "source": record.place,
            "beganNs": record.time_created_ns + self._recorded.wall_offset_ns,
            "durationNs": record.duration_ns,
            "sentNonfinite": record.sent_nonfinite,
            "receivedNonfinite": record.received_nonfinite,
            "synthesized": record.synthesized,
        }

    def _memory(self, arguments: Arguments) -> Json:
        """As the debugger's `memory` shows it; `query` is what follows that word: peak, curve, stack 3.1."""
        query = arguments.text("query", "")
        if query.split(" ", 1)[0] == "export":
            raise UsageError("this request writes no files", hint="type `memory export FILE` in the debug console")
        answer = self._motion.do(f"memory {query}".strip())
        assert isinstance(answer, answers.Memory)
        return {"moment": str(answer.moment), "by": answer.by, "text": answer_text(answer)}
