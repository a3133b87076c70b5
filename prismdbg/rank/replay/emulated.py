"""An emulated rank replayed: what was made up is made up again, the same to the last bit, for it follows from what the
rank sends. Only what came from other ranks is read from the log: payloads, and keys of the store."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prismdbg.capsule.log.events import Note
from prismdbg.errors import CapsuleError
from prismdbg.model import synthesis
from prismdbg.model.collective import Collective
from prismdbg.model.ops import ONLY_THE_SENDER_KNOWS
from prismdbg.rank.c10d.call import Call
from prismdbg.rank.emulation import filling
from prismdbg.rank.emulation.checkpoints import accept_partial_plans
from prismdbg.rank.emulation.control import is_control, object_call
from prismdbg.rank.emulation.notes import NOISE_NOTE, STORE_NOTE
from prismdbg.rank.emulation.outbox import OBJECT_GATHERS
from prismdbg.rank.emulation.real_groups import circle_of
from prismdbg.rank.emulation.store import StoreState
from prismdbg.rank.emulation.world import StepLimit, install_world
from prismdbg.rank.program.isolation import quiet
from prismdbg.rank.recording.steps import COUNTER
from prismdbg.rank.replay.peers import Answer, PeerSource
from prismdbg.settings.emulation import Emulation


def begin_again(settings: Emulation, notes: Sequence[Note], sources: list[PeerSource]) -> None:
    """The world as it was, for a replay whose answers come from `sources`."""
    store = StoreAsEmulated(notes)
    partners = frozenset(circle_of(settings)) - {settings.rank}
    install_world(StoreState(settings.rank, settings.world, store.value, lambda *_: None, store.lacks, partners))
    sources.insert(0, PeersAsEmulated(settings, notes))
    COUNTER.listen(StepLimit(settings.steps, lambda: None))


class PeersAsEmulated:
    """A `PeerSource`. Of what is recorded, and of what nobody made up, it knows nothing."""

    def __init__(self, settings: Emulation, notes: Iterable[Note]) -> None:
        self._settings = settings
        self._like = {
            str(note.data["identity"]): (float(note.data["mean"]), float(note.data["deviation"]))
            for note in notes
            if note.kind == NOISE_NOTE
        }

    def answer(self, call: Call, record: Collective | None) -> Answer | None:
        if call.spec.name in OBJECT_GATHERS and is_control(call.outputs) and object_call():
            accept_partial_plans()
        if record is None or not record.can_be_made_again:
            return None
        with quiet():
            self._fill(call, record)
        return Answer(synthesized=True, source=record.source_rank, again=True)

    def _fill(self, call: Call, record: Collective) -> None:
        outputs, inputs = [t.detach() for t in call.received], [t.detach() for t in call.inputs]
        match record.made:
            case synthesis.ECHO:
                filling.echo(call, outputs, [] if call.spec.movement in ONLY_THE_SENDER_KNOWS else inputs)
            case synthesis.ZEROS:
                filling.zeros(outputs)
            case synthesis.NOISE:
                filling.noise(outputs, self._seed(record))
            case synthesis.NOISE_LIKE:
                filling.noise(outputs, self._seed(record), *self._statistics(record))
            case synthesis.BALANCED:
                filling.balanced(outputs, inputs)
            case synthesis.OWN:
                outputs[0].copy_(inputs[call.rank])
            case _:
                assert record.made == synthesis.NOTHING, record.made

    def _seed(self, record: Collective) -> int:
        return filling.seed_of(self._settings.seed, self._settings.rank, record.identity)

    def _statistics(self, record: Collective) -> tuple[float, float]:
        try:
            return self._like[str(record.identity)]
        except KeyError:
            raise CapsuleError(f"the log does not contain the noise that {record.identity} received") from None


class StoreAsEmulated:
    """The same answers, to the same question as often as it was asked before."""

    def __init__(self, notes: Iterable[Note]) -> None:
        self._said: dict[str, list[tuple[int, bytes]]] = {}
        self._asked: Counter[str] = Counter()
        for note in notes:
            if note.kind == STORE_NOTE:
                data: Mapping[str, Any] = note.data
                value = base64.b64decode(str(data["value"]))
                self._said.setdefault(str(data["key"]), []).append((int(data["nth"]), value))

    def value(self, key: str) -> bytes | None:
        nth = self._asked[key]
        self._asked[key] += 1
        return next((value for first, value in reversed(self._said.get(key, [])) if first <= nth), None)

    def lacks(self, key: str) -> None:
        """The one who asks asks again: a rank that stood here was told later."""
        if all(first < self._asked[key] for first, _ in self._said.get(key, [])):
            raise CapsuleError(
                f"the program reads {key!r} from the store, which had no such value in the emulation",
                hint="emulate again with this program: it changed, or it ran past the end of the emulation",
            )
