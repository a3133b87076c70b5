"""Where a replayed rank is, as digests: of all it sent, received and drew. The same place has the same digests."""

from __future__ import annotations

import hashlib
import random
import sys
from array import array

import torch

from prismdbg.model.collective import Collective, Identity
from prismdbg.model.moment import Moment


class Place:
    """Cheap for every collective: what is sent was hashed to be compared, a recorded answer is known by its record.

    A random generator that the program has not touched yet counts as that: it may start anywhere.
    """

    def __init__(self) -> None:
        self._untouched = {"python": _python(), "numpy": _numpy()}
        self._sent = hashlib.blake2b(digest_size=8)
        self._received = hashlib.blake2b(digest_size=8)
        self._steps = array("q")
        self._collectives = array("q")

    def sends(self, moment: Moment, identity: Identity, fingerprint: int | None) -> None:
        if not self._untouched["numpy"]:  # imported only later
            self._untouched["numpy"] = _numpy()
        self._sent.update(f"{moment} {identity} {fingerprint} ".encode())

    def receives(self, moment: Moment, record: Collective | None, synthesized: bool) -> None:
        """A synthesized answer follows from what was sent before."""
        came = "synthesized" if synthesized or record is None else str(record.record_id)
        self._received.update(f"{moment} {came} ".encode())
        self._steps.append(moment.step)
        self._collectives.append(moment.collective)

    def history(self, count: int, skip: int) -> list[str]:
        """The last `count` collectives that were answered, without the last `skip`."""
        end = len(self._steps) - skip
        return [str(Moment(self._steps[i], self._collectives[i])) for i in range(max(end - count, 0), max(end, 0))]

    def digests(self) -> dict[str, str]:
        """Up to here."""
        found = {
            "sent": self._sent.hexdigest(),
            "received": self._received.hexdigest(),
            "torch": _hash(torch.get_rng_state().numpy().tobytes()),
            "python": _python(),
            "numpy": _numpy(),
        }
        if torch.cuda.is_initialized():
            found["cuda"] = _hash(b"".join(state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()))
        return {name: "untouched" if self._untouched.get(name) == now else now for name, now in found.items()}


def _python() -> str:
    return _hash(repr(random.getstate()).encode())


def _numpy() -> str:
    """Empty while it is not there."""
    numpy = sys.modules.get("numpy.random")
    if numpy is None or not hasattr(numpy, "get_state"):
        return ""
    kind, keys, *rest = numpy.get_state()
    return _hash(keys.tobytes() + repr((kind, rest)).encode())


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
