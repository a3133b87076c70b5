"""The program's own beginning, before its restore point: answered from what was recorded then, else synthesized.
Nothing of it is compared, for the replay begins at the restore point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prismdbg.capsule.log.clock_reads import At
from prismdbg.capsule.log.reader import read_log
from prismdbg.errors import CapsuleError
from prismdbg.model.collective import Collective, runs_of
from prismdbg.rank.c10d.call import Call, Redispatch, metas
from prismdbg.rank.c10d.counters import Counters
from prismdbg.rank.c10d.works import finished
from prismdbg.rank.program.isolation import is_quiet, ours
from prismdbg.rank.replay import recorded_clocks
from prismdbg.rank.replay.peers import Answer, RecordedPeers, SynthesizedPeers, refuse_captured


class Prologue:
    """The kernels' interceptor until the restore point. `records`: how many collectives the recorded rank had issued
    there."""

    def __init__(self, log_folder: Path, records: int) -> None:
        log = read_log(log_folder)
        self._by_identity = {record.identity: record for record in log.collectives if record.record_id < records}
        self._recorded = RecordedPeers(log_folder)
        self._synthesized = SynthesizedPeers()
        self._counters = Counters()
        self.issued = 0
        if (clocks := recorded_clocks.begun()) is not None:
            clocks.add(log.clock_reads)
            clocks.go_on(self._at, is_quiet)
        self.not_recorded: list[str] = []

    def _at(self) -> At:
        return self._counters.step, self._counters.collective

    def collective(self, call: Call, redispatch: Redispatch) -> Any:
        refuse_captured(call, self._counters.moment)
        with ours():
            _, _, identity = self._counters.issue(call)
            self.issued += 1
            answer = self._answer(call, self._by_identity.get(identity))
            return call.result(finished(call, answer.source, answer.failure))

    def unreadable(self, error: Exception, redispatch: Redispatch) -> Any:
        raise error

    def _answer(self, call: Call, record: Collective | None) -> Answer:
        if record is not None and _is_same(call, record):
            try:
                if (answer := self._recorded.answer(call, record)) is not None:
                    return answer
            except CapsuleError:  # of another size, or not kept
                pass
        self.not_recorded.append(call.spec.label)
        return self._synthesized.answer(call, record)


def _is_same(call: Call, record: Collective) -> bool:
    """Whether what was received fits the call."""
    recorded = tuple(meta for meta, count in runs_of(record.outputs) for _ in range(count))
    return record.op == call.spec.name and [m.shape for m in recorded] == [m.shape for m in metas(call.outputs)]
