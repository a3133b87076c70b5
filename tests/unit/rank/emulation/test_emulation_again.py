"""What was made up when a rank was emulated is made up again, and the store says again what others had said."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from prismdbg.capsule.log.events import Note
from prismdbg.errors import CapsuleError
from prismdbg.model import synthesis
from prismdbg.model.collective import Identity, State
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS, OpSpec
from prismdbg.rank.emulation import filling
from prismdbg.rank.emulation.notes import StoreNotes, noise_note
from prismdbg.rank.replay.emulated import PeersAsEmulated, StoreAsEmulated
from prismdbg.settings.emulation import Emulation
from tests.unit.logs import lone_collective

SETTINGS = Emulation(rank=3, world=8, axes=(("dp", 8),), seed=7)
WHERE = Identity("0", 4)
RECORD = lone_collective(
    record_id=4, moment=Moment(1, 2), identity=WHERE, time_created_ns=1, state=State.COMPLETED, synthesized=True
)


@dataclass
class Played:
    """As much of a call as the peers look at."""

    name: str
    received: list[torch.Tensor]
    inputs: list[torch.Tensor]
    size: int = 8
    rank: int = 3
    reduce_op: str = "SUM"
    spec: OpSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = OPS[self.name]

    @property
    def outputs(self) -> list[torch.Tensor]:
        return self.received


def answered(call: Played, made: str, *notes: Note) -> Any:
    return PeersAsEmulated(SETTINGS, notes).answer(call, replace(RECORD, made=made))  # type: ignore[arg-type]


def test_an_echo_is_made_of_what_is_sent_now() -> None:
    x = torch.arange(3.0)
    answer = answered(Played("allreduce_", [x], [x]), synthesis.ECHO)
    assert x.tolist() == [0.0, 8.0, 16.0]
    assert answer.synthesized and answer.again


def test_of_a_broadcast_the_echo_is_what_the_rank_holds() -> None:
    x = torch.arange(3.0)
    answered(Played("broadcast_", [x], [x]), synthesis.ECHO)
    assert x.tolist() == [0.0, 1.0, 2.0]


def test_noise_is_the_same_noise() -> None:
    then, now = torch.zeros(5), torch.zeros(5)
    filling.noise([then], filling.seed_of(7, 3, WHERE))
    answered(Played("broadcast_", [now], []), synthesis.NOISE)
    assert torch.equal(then, now) and then.abs().sum() > 0


def test_noise_like_a_donors_needs_its_statistics() -> None:
    mean, deviation = 0.1 + 0.2, 1.0 / 3.0
    body = json.loads(noise_note(WHERE, mean, deviation))
    note = Note(body.pop("kind"), body.pop("time_ns"), body)
    then, now = torch.zeros(5), torch.zeros(5)
    filling.noise([then], filling.seed_of(7, 3, WHERE), mean, deviation)
    answered(Played("recv_", [now], []), synthesis.NOISE_LIKE, note)
    assert torch.equal(then, now)
    with pytest.raises(CapsuleError, match="the noise"):
        answered(Played("recv_", [now], []), synthesis.NOISE_LIKE)


def test_zeros_own_and_nothing() -> None:
    x, parts = torch.ones(2), [torch.full((2,), float(i)) for i in range(8)]
    answered(Played("reduce_scatter_", [x], parts), synthesis.ZEROS)
    assert x.tolist() == [0.0, 0.0]
    answered(Played("scatter_", [x], parts), synthesis.OWN)
    assert x.tolist() == [3.0, 3.0]
    answered(Played("barrier", [], []), synthesis.NOTHING)


@pytest.mark.parametrize("made", sorted(synthesis.FROM_OTHERS))
def test_what_came_from_others_is_for_the_record_to_say(made: str) -> None:
    x = torch.ones(2)
    assert answered(Played("recv_", [x], []), made) is None
    assert x.tolist() == [1.0, 1.0]


def test_every_way_is_either_made_again_or_kept() -> None:
    for number, way in enumerate(synthesis.WAYS):
        assert synthesis.way_of(number) == way and synthesis.NUMBERS[way] == number
        assert replace(RECORD, made=way).can_be_made_again == (way not in synthesis.FROM_OTHERS)
    assert synthesis.way_of(200) == synthesis.NOT_KNOWN
    assert not replace(RECORD, made=synthesis.ECHO, synthesized=False).can_be_made_again


def test_the_store_answers_as_often_as_it_was_asked() -> None:
    said: dict[str, bytes] = {}
    notes: list[Note] = []
    then = StoreNotes(said.get, lambda kind, **data: notes.append(Note(kind, 0, json.loads(json.dumps(data)))))
    first = [then.value("lr"), then.value("lr")]
    said["lr"] = b"\x80\x01"
    first += [then.value("lr"), then.value("lr")]
    said["lr"] = b"other"
    first.append(then.value("lr"))
    assert len(notes) == 2

    now = StoreAsEmulated(notes)
    again = []
    for expected in first:
        if expected is None and again:
            now.lacks("lr")  # it stood there, and was told
        again.append(now.value("lr"))
    assert again == first == [None, None, b"\x80\x01", b"\x80\x01", b"other"]
    assert now.value("lr") == b"other"


def test_a_key_that_nobody_had_set_is_named() -> None:
    store = StoreAsEmulated(())
    assert store.value("port") is None
    with pytest.raises(CapsuleError, match="'port'"):
        store.lacks("port")
