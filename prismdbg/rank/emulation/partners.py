"""The members of one group that run at once, where others of it are virtual: what they send each other is real.

A virtual member is taken to send what the real one at its coordinates along the axes that run at once sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from prismdbg.model import synthesis
from prismdbg.model.ops import REDUCTIONS, Movement
from prismdbg.rank.c10d.call import Call
from prismdbg.rank.emulation import checkpoints, exchange, filling
from prismdbg.rank.emulation.answers import Answered, Asked
from prismdbg.rank.emulation.control import holds_it_already, is_control, object_call
from prismdbg.rank.emulation.outbox import OBJECT_GATHERS
from prismdbg.rank.program.isolation import unseen
from prismdbg.settings.emulation import Policy

_SUMMED = {"AVG": "SUM", "PREMUL_SUM": "SUM"}  # what gloo lacks
Alone = Callable[[], Answered]
StandsFor = Callable[[int], int]


class Partners:
    """`places`: of the members that run at once, in group order, this rank's among them. stands_for: the rank that a
    virtual one is taken to do as."""

    def __init__(self, backend: dist.ProcessGroupGloo, places: Sequence[int], stands_for: StandsFor) -> None:
        self._backend = backend
        self._places = places
        self._at = {place: index for index, place in enumerate(places)}
        self._stands_for = stands_for
        self._roles: list[int] | None = None

    def answer(self, asked: Asked, alone: Alone) -> Answered | None:
        """None where each does as if all others were virtual."""
        movement = asked.call.spec.movement
        if asked.call.spec.is_p2p:
            return self._message(asked)
        if movement is Movement.BARRIER:
            return Answered(how=synthesis.NOTHING, fill=_after(self._backend.barrier()))
        if movement is Movement.BROADCAST:
            return self._broadcast(asked, alone)
        if movement is Movement.SCATTER:
            return self._scatter(asked)
        if movement is Movement.ALL_TO_ALL or asked.policy not in (Policy.AUTO, Policy.ECHO):
            return None
        return self._reduced(asked) if movement in REDUCTIONS else self._gathered(asked)

    def _message(self, asked: Asked) -> Answered | None:
        call = asked.call
        if call.spec.is_from_any:
            raise RuntimeError(
                "prismdbg: a receive from any rank cannot be answered in a group of which some members run at once "
                "and others are virtual: give the source, or use a group whose members all run at once"
            )
        if call.root not in self._at:
            return None
        peer = self._at[call.root]
        if call.spec.movement is Movement.SEND:
            work = self._backend.send(asked.inputs, peer, call.tag)
            return Answered(how=synthesis.NOTHING, source=call.root, fill=_after(work))
        work = self._backend.recv(asked.outputs, peer, call.tag)
        return Answered(how=synthesis.DONOR, source=call.root, fill=_after(work))

    def _broadcast(self, asked: Asked, alone: Alone) -> Answered | None:
        """What a virtual root sends is synthesized by the first of these, for all of them."""
        call = asked.call
        if call.root in self._at:
            how = synthesis.NOTHING if call.root == call.rank else synthesis.DONOR
            return Answered(how=how, source=call.root, fill=self._sent_from(self._at[call.root], call))
        if holds_it_already():
            return None
        if self._at[call.rank] != 0:
            return Answered(how=synthesis.ECHO_AND_DONOR, source=call.root, fill=self._sent_from(0, call))
        own = alone()
        return Answered(how=own.how, source=own.source, like=own.like, fill=self._sent_from(0, call))

    def _sent_from(self, first: int, call: Call) -> Callable[[], None]:
        tensors = [tensor.detach() for tensor in call.outputs]
        return _after(*(self._backend.broadcast(tensor, first) for tensor in tensors))

    def _scatter(self, asked: Asked) -> Answered | None:
        call = asked.call
        if call.root not in self._at:
            return None
        parts = [call.inputs[place].detach() for place in self._places] if call.root == call.rank else []
        work = self._backend.scatter(asked.outputs[0], parts, self._at[call.root])
        how = synthesis.OWN if call.root == call.rank else synthesis.DONOR
        return Answered(how=how, source=call.root, fill=_after(work))

    def _reduced(self, asked: Asked) -> Answered | None:
        call, times = asked.call, self._times(asked.members)
        if times is None or any(t.dtype == torch.bool or filling.is_tiny(t) or t.is_sparse for t in asked.inputs):
            return None
        if call.spec.movement is Movement.REDUCE_SCATTER:
            whole = [
                torch.stack([exchange.share(call, asked.inputs, index, place) for place in self._places])
                for index in range(len(asked.outputs))
            ]
        else:
            whole = [tensor.clone() for tensor in asked.inputs]
        op = getattr(dist.ReduceOp, _SUMMED.get(call.reduce_op, call.reduce_op))
        works = [self._backend.allreduce(tensor, op) for tensor in whole]

        def fill() -> None:
            _after(*works)()
            with unseen():
                for tensor, target in zip(whole, asked.outputs, strict=False):  # only the root of a reduce has any
                    own = tensor[self._at[call.rank]] if call.spec.movement is Movement.REDUCE_SCATTER else tensor
                    if call.reduce_op == "AVG":
                        own = own / len(self._places)
                    filling.combine(call, own, times)
                    target.copy_(own.reshape(target.shape))

        return self._answered(asked, fill)

    def _gathered(self, asked: Asked) -> Answered | None:
        call, roles = asked.call, self._roles_of(asked.members)
        if roles is None or any(t.is_sparse for t in asked.inputs):
            return None
        if call.spec.name in OBJECT_GATHERS and is_control(call.inputs) and object_call():
            checkpoints.accept_partial_plans()
        of_all = [[torch.empty_like(tensor) for _ in self._places] for tensor in asked.inputs]
        works = [
            self._backend.allgather(parts, tensor.contiguous())
            for parts, tensor in zip(of_all, asked.inputs, strict=True)
        ]

        def fill() -> None:
            _after(*works)()
            with unseen():
                by_place = [[parts[role] for parts in of_all] for role in roles]
                exchange.gathered(call, asked.outputs, by_place)

        return self._answered(asked, fill)

    @staticmethod
    def _answered(asked: Asked, fill: Callable[[], None]) -> Answered:
        return Answered(how=synthesis.ECHO_AND_DONOR if asked.outputs else synthesis.NOTHING, fill=fill)

    def _times(self, members: Sequence[int]) -> int | None:
        """How many members each of these is taken for, itself included; None where that is not the same for all."""
        roles = self._roles_of(members)
        counts = {*Counter(roles).values()} if roles is not None else set()
        return counts.pop() if len(counts) == 1 and len({*roles}) == len(self._places) else None  # type: ignore[misc]

    def _roles_of(self, members: Sequence[int]) -> list[int] | None:
        """For each member the index of the one that it is taken to do as; None where that one is not in the group."""
        if self._roles is None:
            by_rank = {members[place]: index for index, place in enumerate(self._places)}
            self._roles = [by_rank.get(self._stands_for(rank), -1) for rank in members]
        return None if -1 in self._roles else self._roles


def _after(*works: dist.Work) -> Callable[[], None]:
    def wait() -> None:
        for work in works:
            work.wait()

    return wait
