"""What an emulated rank notes so that it can be replayed: the noise that it was given, and what was in the store."""

from __future__ import annotations

import base64
import json
import time
from collections import Counter
from collections.abc import Callable

from prismdbg.capsule.log.notes import PARTS
from prismdbg.model.collective import Identity
from prismdbg.model.ops import Form, Movement
from prismdbg.rank.c10d.call import Call, bytes_of

NOISE_NOTE, STORE_NOTE = "noise", "store"


def noise_note(identity: Identity, mean: float, deviation: float) -> bytes:
    """The body of a note: JSON keeps every bit of both."""
    note = {"kind": NOISE_NOTE, "time_ns": time.monotonic_ns(), "identity": str(identity)}
    return json.dumps({**note, "mean": mean, "deviation": deviation}).encode()


def parts_note(identity: Identity, call: Call) -> bytes | None:
    """The body of a note: of an all-to-all with uneven parts, how many bytes go to and come from each member."""
    if call.spec.movement is not Movement.ALL_TO_ALL or call.spec.form is not Form.FLAT:
        return None
    sent, received = ([bytes_of([part]) for part in parts] for parts in (call.parts_sent, call.parts_received))
    if len({*sent, *received}) == 1:
        return None
    note = {"kind": PARTS, "time_ns": time.monotonic_ns(), "identity": str(identity)}
    return json.dumps({**note, "parts_sent": sent, "parts_received": received}).encode()


class StoreNotes:
    """What other ranks had set in the store, each time it was asked for: noted as it is found."""

    def __init__(self, look: Callable[[str], bytes | None], note: Callable[..., None]) -> None:
        self._look = look
        self._note = note
        self._asked: Counter[str] = Counter()
        self._known: dict[str, bytes] = {}

    def value(self, key: str) -> bytes | None:
        value = self._look(key)
        if value is not None and self._known.get(key) != value:
            self._known[key] = value
            self._note(STORE_NOTE, key=key, nth=self._asked[key], value=base64.b64encode(value).decode())
        self._asked[key] += 1
        return value
