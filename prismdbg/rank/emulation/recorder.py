"""Records an emulated rank's collectives as those of a real one, while the synthesized peers answer them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from prismdbg.capsule import log_format as fmt
from prismdbg.model.collective import Identity
from prismdbg.rank.call import Call, Redispatch, identity_key
from prismdbg.rank.emulation.again import noise_note
from prismdbg.rank.emulation.peers import EmulatedPeers
from prismdbg.rank.python_recorder import PythonRecorder
from prismdbg.rank.works import finished


class EmulatedRecorder(PythonRecorder):
    """No call ever reaches a backend, also when recording is off or lost."""

    def __init__(self, peers: EmulatedPeers) -> None:
        super().__init__()
        self._peers = peers
        self._sequences: Counter[tuple[str, str, int, int]] = Counter()

    def collective(self, call: Call, redispatch: Redispatch) -> Any:
        return super().collective(call, lambda: self._answered(call))

    def unreadable(self, error: Exception, redispatch: Redispatch) -> Any:
        raise error

    def _answered(self, call: Call) -> Any:
        identity = self._identity(call)
        answered = self._peers.answer(call, identity)
        call.synthesized, call.made = True, answered.how
        if answered.like is not None:
            self.append(fmt.Kind.NOTE, noise_note(identity, *answered.like))
        return call.result(finished(call, answered.source) if answered.work is None else answered.work.boxed())

    def _identity(self, call: Call) -> Identity:
        """Also of a call that is not recorded."""
        group, op, peer, tag = key = identity_key(call.spec, call)
        sequence = self._sequences[key]
        self._sequences[key] += 1
        return Identity(group, sequence, op, peer, tag)
