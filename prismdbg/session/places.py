"""The same place reached twice is the same to the last bit, or it is said. Digests as the rank tells them at a stop."""

from __future__ import annotations

from prismdbg.model.moment import Moment

MAX_PLACES = 100_000

_WORDS = {
    "sent": "what was sent",
    "received": "what was received",
    "torch": "torch's random numbers",
    "python": "Python's random numbers",
    "numpy": "numpy's random numbers",
    "cuda": "the GPU's random numbers",
}

Digests = dict[str, str]


class Places:
    """The first visit's digests of every place. A place is a moment before or after its answer."""

    def __init__(self) -> None:
        self._known: dict[tuple[Moment, str], Digests] = {}
        self.compared = 0

    def visit(self, moment: Moment, side: str, digests: Digests) -> tuple[str, ...]:
        """What is not as it was when this place was first reached, in words; empty where all is, or it is new."""
        if not digests:
            return ()
        known = self._known.get((moment, side))
        if known is None:
            if len(self._known) < MAX_PLACES:
                self._known[moment, side] = dict(digests)
            return ()
        self.compared += 1
        names = [name for name in known if name in digests and known[name] != digests[name]]
        return tuple(_WORDS.get(name, name) for name in names)

    def forget(self) -> None:
        """After a change that is meant: another program, another peer."""
        self._known.clear()
