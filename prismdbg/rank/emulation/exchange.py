"""Collectives among ranks that run in turn: each receives what the others send, as in the real job.

Counts of an all-to-all shape every later call, so nobody makes them up: the ranks that send them run in turn. What
these ranks send each other from then on is theirs, too, for the next counts are computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import torch

from prismdbg.model.collective import Identity
from prismdbg.model.ops import Form, Movement
from prismdbg.rank.c10d.call import Call, bytes_of
from prismdbg.rank.emulation import filling
from prismdbg.rank.emulation.control import is_control
from prismdbg.settings.donor_value import collective_key
from prismdbg.settings.emulation import Policy

_TOGETHER = frozenset(
    {
        Movement.ALL_REDUCE,
        Movement.REDUCE,
        Movement.REDUCE_SCATTER,
        Movement.ALL_GATHER,
        Movement.GATHER,
        Movement.ALL_TO_ALL,
    }
)
_COMBINE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def is_routing(call: Call) -> bool:
    """Whether it says how much each member will send to each."""
    return call.spec.movement is Movement.ALL_TO_ALL and is_control(call.inputs)


def contributed_key(call: Call, identity: Identity, place: int) -> str:
    """Of what the member at this place puts into a collective."""
    return f"{collective_key(call.group_name, identity.seq)}<{place}"


def part_key(call: Call, identity: Identity, source: int, target: int) -> str:
    """Of what one member of an all-to-all sends to another."""
    return f"{contributed_key(call, identity, source)}>{target}"


class Exchange:
    """Which groups' members run in turn: those that exchanged counts, and every group among them."""

    def __init__(self) -> None:
        self._circles: list[frozenset[int]] = []
        self._known: dict[str, bool] = {}

    def began(self, members: Sequence[int]) -> None:
        """These have exchanged counts."""
        circle = frozenset(members)
        if circle not in self._circles:
            self._circles.append(circle)
            self._known.clear()

    def meets(self, call: Call, policy: Policy, members: Sequence[int]) -> bool:
        """Whether the members receive what they really send each other in it."""
        if policy is not Policy.AUTO or call.size < 2 or call.spec.movement not in _TOGETHER:
            return False
        return is_routing(call) or self._among(call.group_name, members)

    def _among(self, group: str, members: Sequence[int]) -> bool:
        if not self._circles:
            return False
        if group not in self._known:
            self._known[group] = any(circle.issuperset(members) for circle in self._circles)
        return self._known[group]


def wanted(call: Call, identity: Identity) -> dict[str, tuple[int, int]] | None:
    """By key, whose value and of how many bytes the other members' must be; None where it cannot be combined here."""
    others = [place for place in range(call.size) if place != call.rank]
    if call.spec.movement is Movement.ALL_TO_ALL:
        parts = call.parts_received
        sizes = {place: bytes_of([parts[place]]) for place in others}
        return {part_key(call, identity, p, call.rank): (p, size) for p, size in sizes.items() if size}
    if call.reduce_op and (call.reduce_op not in _COMBINE or any(filling.is_tiny(t) for t in call.inputs)):
        return None
    size = bytes_of(call.inputs)
    return {contributed_key(call, identity, place): (place, size) for place in others if size}


def fill(
    call: Call, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], said: Mapping[int, bytes]
) -> None:
    """`said`: by place, what the others sent."""
    if call.spec.movement is Movement.ALL_TO_ALL:
        sent = call.parts_sent
        for place, part in enumerate(call.parts_received):
            target = part.detach()
            if place == call.rank:
                target.copy_(sent[place].detach())
            else:
                filling.pour(target, said.get(place, b""))
        return
    own = [tensor.clone() for tensor in inputs]  # an output may be the input itself
    by_place = [own if place == call.rank else _poured(own, said.get(place, b"")) for place in range(call.size)]
    match call.spec.movement:
        case Movement.ALL_REDUCE | Movement.REDUCE:
            for index, target in enumerate(outputs):
                target.copy_(_combined(call, [parts[index] for parts in by_place]))
        case Movement.REDUCE_SCATTER:
            for index, target in enumerate(outputs):
                shares = [share(call, parts, index, call.rank) for parts in by_place]
                target.copy_(_combined(call, shares).reshape(target.shape))
        case _:
            gathered(call, outputs, by_place)


def gathered(call: Call, outputs: Sequence[torch.Tensor], by_place: Sequence[Sequence[torch.Tensor]]) -> None:
    """A list holds for each member its inputs; the into-tensor forms one for all."""
    for index, target in enumerate(outputs):
        if call.spec.form is Form.FLAT:
            target.copy_(torch.cat([parts[index].reshape(-1) for parts in by_place]).view(target.shape))
        else:
            place, number = divmod(index, len(by_place[0]))
            target.copy_(by_place[place][number].reshape(target.shape))


def share(call: Call, parts: Sequence[torch.Tensor], index: int, place: int) -> torch.Tensor:
    """What of these inputs of a reduce-scatter goes into the output of the member at this place."""
    if call.spec.form is Form.LISTED:
        return parts[index * call.size + place]
    return parts[index].reshape(call.size, -1)[place]


def _combined(call: Call, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    whole = reduce(_COMBINE[call.reduce_op], parts)
    return whole / call.size if call.reduce_op == "AVG" else whole


def _poured(like: Sequence[torch.Tensor], data: bytes) -> list[torch.Tensor]:
    made, at = [], 0
    for tensor in like:
        target = torch.empty_like(tensor)
        size = bytes_of([target])
        filling.pour(target, memoryview(data)[at : at + size])
        made.append(target)
        at += size
    return made
