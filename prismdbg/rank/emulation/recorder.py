"""Records an emulated rank's collectives as those of a real one, while the synthesized peers answer them."""

from __future__ import annotations

from typing import Any

from prismdbg.rank.call import Call, Redispatch
from prismdbg.rank.counters import Counters
from prismdbg.rank.emulation.peers import EmulatedPeers
from prismdbg.rank.python_recorder import PythonRecorder
from prismdbg.rank.works import finished


class EmulatedRecorder(PythonRecorder):
    """No call ever reaches a backend, also when recording is off or lost."""

    def __init__(self, peers: EmulatedPeers) -> None:
        super().__init__()
        self._peers = peers
        self._identities = Counters()

    def collective(self, call: Call, redispatch: Redispatch) -> Any:
        return super().collective(call, lambda: self._answered(call))

    def unreadable(self, error: Exception, redispatch: Redispatch) -> Any:
        raise error

    def _answered(self, call: Call) -> Any:
        _, _, identity = self._identities.issue(call)
        answered = self._peers.answer(call, identity)
        call.synthesized = True
        return call.result(finished(call, answered.source) if answered.work is None else answered.work.boxed())
