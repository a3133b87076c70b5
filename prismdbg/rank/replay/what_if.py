"""Peers that send something else than they did, come late or never come: as a script assumes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment
from prismdbg.model.ops import ONLY_THE_SENDER_KNOWS, REDUCTIONS, TO_ROOT, Form, Movement
from prismdbg.rank.c10d.call import Call
from prismdbg.rank.emulation.control import holds_it_already, is_control
from prismdbg.rank.emulation.fake_world import timeout_of
from prismdbg.rank.replay.peers import Answer

_COMBINE: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "SUM": torch.Tensor.add_,
    "AVG": torch.Tensor.add_,
    "PRODUCT": torch.Tensor.mul_,
    "MIN": lambda a, b: a.copy_(torch.minimum(a, b)),
    "MAX": lambda a, b: a.copy_(torch.maximum(a, b)),
    "BAND": torch.Tensor.bitwise_and_,
    "BOR": torch.Tensor.bitwise_or_,
    "BXOR": torch.Tensor.bitwise_xor_,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """`ranks`: global ones; empty for all. `group`: its name or title; empty for every group. `answer`: empty where
    they send what they did."""

    since: Moment
    until: Moment | None = None
    ranks: frozenset[int] = frozenset()
    group: str = ""
    answer: str = ""
    seed: int = 0
    late_s: float = 0.0
    missing: bool = False

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Assumption:
        if data.get("answer", "") not in ("", "echo", "zeros", "noise"):
            raise UsageError(
                f"{data['answer']!r} is not something that a peer can send", hint="use echo, zeros or noise"
            )
        return cls(
            since=Moment.parse(str(data.get("since", "0"))),
            until=Moment.parse(str(data["until"])) if data.get("until") else None,
            ranks=frozenset(int(rank) for rank in data.get("ranks", ())),
            group=str(data.get("group", "")),
            answer=str(data.get("answer", "")),
            seed=int(data.get("seed", 0)),
            late_s=float(data.get("late_s", 0.0)),
            missing=bool(data.get("missing", False)),
        )

    def is_about(self, moment: Moment, names: tuple[str, ...]) -> bool:
        in_time = self.since <= moment and (self.until is None or moment < self.until)
        return in_time and (not self.group or self.group in names)


class WhatIf:
    """The last assumption that is about a call decides it. `members`: global ranks of a group, in its order;
    `titles`: what it may be called."""

    def __init__(
        self,
        assumptions: list[Assumption],
        members: Callable[[str], list[int]],
        titles: Callable[[str], tuple[str, ...]],
    ) -> None:
        self._assumptions = assumptions
        self._members = members
        self._titles = titles

    def chosen(self, call: Call, moment: Moment) -> tuple[Assumption, list[int]] | None:
        """What is assumed of this call, and of which peers, by their rank in the group."""
        names = self._titles(call.group_name)
        members = self._members(call.group_name)
        for assumption in reversed(self._assumptions):
            if assumption.is_about(moment, names):
                peers = [
                    place
                    for place, rank in enumerate(members)
                    if place != call.rank and (not assumption.ranks or rank in assumption.ranks)
                ]
                if peers := [peer for peer in peers if _matters(call, peer)]:
                    return assumption, peers
        return None

    def arrive(self, call: Call, assumption: Assumption, peers: list[int]) -> None:
        """The peers come late, or the call fails as one that timed out."""
        who = ", ".join(str(self._members(call.group_name)[peer]) for peer in peers)
        bound_s = call.timeout_ms / 1000 if call.timeout_ms > 0 else timeout_of(call.group).total_seconds()
        if assumption.missing or assumption.late_s > bound_s:
            what = f"{call.spec.label} of group {self._titles(call.group_name)[-1]}"
            raise RuntimeError(f"Timed out, as assumed: rank {who} did not come to {what} within {bound_s:g} s")
        if assumption.late_s:
            time.sleep(assumption.late_s)

    def keeps_record(self, call: Call) -> bool:
        """Whether the record tells what each peer sent. Of a sum it has only the whole, which may lie where this rank's
        own share lies now."""
        return call.spec.movement not in REDUCTIONS

    def answer(self, call: Call, assumption: Assumption, peers: list[int], recorded: bool, key: str) -> Answer:
        """Fills what the call receives. `recorded`: the outputs hold the recorded answer already; `key`: which call
        it is, so that noise is the same each time."""
        source = _Source(assumption, key)
        if call.spec.movement is Movement.BROADCAST and is_control(call.received) and holds_it_already():
            return Answer(synthesized=True, source=peers[0])  # torch takes it as indices, unchecked
        with torch.no_grad():
            if call.spec.movement in REDUCTIONS:
                _reduce(call, source, peers)
            else:
                chosen = set(peers) if recorded else {place for place in range(call.size) if place != call.rank}
                for peer, target, like in _slots(call):
                    if peer in chosen:
                        target.copy_(source.sent(peer if peer in peers else -1, like, target))
                    elif peer == call.rank and like is not None:
                        target.copy_(like)
        return Answer(synthesized=True, source=peers[0])


class _Source:
    """What an assumed peer sends. Draws from generators of its own."""

    def __init__(self, assumption: Assumption, key: str) -> None:
        self._assumption = assumption
        self._key = key
        self._drawn = 0

    def sent(self, peer: int, like: torch.Tensor | None, target: torch.Tensor) -> torch.Tensor:
        """`like`: what this rank sends, where it sends as much; a peer that nothing is assumed of (-1) echoes."""
        kind = self._assumption.answer if peer >= 0 else "echo"
        if kind == "noise" and target.is_floating_point():
            return self._noise(peer, like, target)
        if kind == "echo" and like is not None:
            return like.reshape(target.shape)
        return torch.zeros_like(target)

    def _noise(self, peer: int, like: torch.Tensor | None, target: torch.Tensor) -> torch.Tensor:
        self._drawn += 1
        generator = torch.Generator().manual_seed(_mix(self._assumption.seed, self._key, peer, self._drawn))
        noise = torch.randn(target.shape, generator=generator, device="cpu")
        width = like.float().std(correction=0).item() if like is not None and like.numel() > 1 else 1.0
        return (noise * (width if math.isfinite(width) and width else 1.0)).to(target)


def _mix(*parts: object) -> int:
    """Of a text and not of `hash`, which differs from process to process."""
    value = 0xCBF29CE484222325
    for byte in repr(parts).encode():
        value = ((value ^ byte) * 0x100000001B3) & 0x7FFFFFFFFFFFFFFF
    return value


def _matters(call: Call, peer: int) -> bool:
    """Of a rooted or point-to-point call only one peer's sending reaches this rank."""
    if call.spec.movement in (*ONLY_THE_SENDER_KNOWS, Movement.SEND) and not call.spec.is_from_any:
        return peer == call.root
    if call.spec.movement in TO_ROOT:
        return call.root == call.rank
    return True


def _reduce(call: Call, source: _Source, peers: list[int]) -> None:
    """Of a sum the record has only the whole: the chosen peers send what is assumed, the others as this rank."""
    combine = _COMBINE.get(call.reduce_op, torch.Tensor.add_)
    for target, own in _own_shares(call):
        total = own.clone()
        for place in range(call.size):
            if place != call.rank:
                combine(total, source.sent(place if place in peers else -1, own, total))
        if call.reduce_op == "AVG":
            total.div_(call.size)
        target.copy_(total.reshape(target.shape))


def _own_shares(call: Call) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Each output, and the part of the inputs that it sums up."""
    outputs, inputs = [t.detach() for t in call.received], [t.detach() for t in call.inputs]
    if call.spec.movement is not Movement.REDUCE_SCATTER:
        yield from zip(outputs, inputs, strict=True)
    elif call.spec.form is Form.LISTED:
        for index, target in enumerate(outputs):
            yield target, inputs[index * call.size + call.rank]
    else:
        for target, whole in zip(outputs, inputs, strict=True):
            yield target, whole.reshape(call.size, -1)[call.rank]


def _slots(call: Call) -> Iterator[tuple[int, torch.Tensor, torch.Tensor | None]]:
    """Which peer each received tensor, or part of one, comes from, and what this rank sends that is as large."""
    outputs, inputs = [t.detach() for t in call.received], [t.detach() for t in call.inputs]
    movement, form = call.spec.movement, call.spec.form
    if movement in (Movement.ALL_GATHER, Movement.GATHER) and form is Form.LISTED:
        for index, target in enumerate(outputs):
            if call.spec.name == "allgather_coalesced_":  # a list of inputs for each rank
                yield index // max(len(inputs), 1), target, inputs[index % len(inputs)]
            else:  # a list of outputs for each input
                yield index % call.size, target, inputs[index // call.size]
    elif movement is Movement.ALL_GATHER:
        for whole, own in zip(outputs, inputs, strict=True):
            for peer, part in enumerate(whole.view(call.size, -1)):
                yield peer, part.detach(), own.reshape(-1)
    elif movement is Movement.ALL_TO_ALL:
        for peer, (target, own) in enumerate(zip(call.parts_received, call.parts_sent, strict=True)):
            yield peer, target.detach(), own.detach() if own.shape == target.shape else None
    else:
        sender = call.root if call.root >= 0 else (call.rank + 1) % call.size
        for target in outputs:
            yield sender, target, None
