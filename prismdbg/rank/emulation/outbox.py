"""What ranks of a run send each other, addressed: kept by the sender, found by the receiver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from prismdbg.model.collective import Identity
from prismdbg.model.ops import Movement
from prismdbg.rank.c10d.call import Call, bytes_of
from prismdbg.rank.c10d.fingerprint import as_bytes
from prismdbg.rank.emulation.control import is_control, object_call
from prismdbg.rank.emulation.donors import DonorReader, DonorWriter
from prismdbg.rank.emulation.exchange import contributed_key, part_key
from prismdbg.rank.emulation.scheduler_client import SchedulerClient
from prismdbg.settings.donor_value import (
    DonorValue,
    collective_key,
    earlier_key,
    received_key,
    sent_key,
    similar_key,
    store_key,
)
from prismdbg.settings.emulation import Emulation, Policy

SMALL_SCATTER_BYTES = 64 << 20
OBJECT_GATHERS = frozenset({"allgather_", "gather_"})  # what all_gather_object and gather_object issue


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueAddress:
    """Where a value that this rank receives is found. `source`: its sender in the group; `offset`: how far away."""

    key: str
    like: str
    source: int
    offset: int = 0


class Outbox:
    """Keeps what this rank sends, as far as others cannot make it up.

    Values that a program computes with are kept only where a rank whose run is wanted receives them, or where a rule
    asks for the senders' own: for everybody else noise will do.
    """

    def __init__(self, settings: Emulation, turn: SchedulerClient) -> None:
        self._settings = settings
        self._asked = frozenset(settings.asked) - {settings.rank}
        self._turn = turn
        self._writer = DonorWriter(Path(settings.donors), settings.rank, settings.donor_bytes)

    def keep(self, call: Call, identity: Identity, axis: str, members: list[int], *, meets: bool = False) -> None:
        """`meets`: the members receive what they really send each other (`exchange`)."""
        movement, is_root = call.spec.movement, call.root == call.rank
        if movement is Movement.SEND:
            way = call.rank, call.root, call.tag, identity.seq
            needed = self._is_needed([members[call.root]], axis, "recv", "recv_any_source")
            self._value(sent_key(call.group_name, *way), call.inputs, sent_key(axis, *way), needed=needed)
        elif movement is Movement.BROADCAST and is_root:
            key = collective_key(call.group_name, identity.seq)
            needed = self._is_needed(members, axis, "broadcast")
            self._value(key, call.inputs, collective_key(axis, identity.seq), needed=needed)
        elif movement is Movement.SCATTER and is_root:
            is_small = bytes_of(call.inputs) <= SMALL_SCATTER_BYTES
            for place, rank in enumerate(members):
                needed = self._is_needed([rank], axis, "scatter")
                if needed or (is_small and is_control(call.inputs)):
                    self._value(scattered_key(call, identity, rank), [call.inputs[place]])
        elif meets and movement is Movement.ALL_TO_ALL:
            parts = call.parts_sent
            others = [place for place in range(call.size) if place != call.rank]
            self._values({part_key(call, identity, call.rank, place): [parts[place]] for place in others})
        elif meets or (call.spec.name in OBJECT_GATHERS and is_control(call.inputs) and object_call()):
            self._value(contributed_key(call, identity, call.rank), call.inputs)

    def _is_needed(self, receivers: list[int], axis: str, *labels: str) -> bool:
        is_a_rule = any(self._settings.policy(axis, label) is Policy.DONOR for label in labels)
        return is_a_rule or not self._asked.isdisjoint(receivers)

    def tally(self) -> dict[str, int]:
        return self._writer.tally()

    def keep_key(self, name: str, value: bytes) -> None:
        self._writer.keep_key(name, value)
        self._turn.kept(store_key(name))

    def _values(self, by_key: Mapping[str, list[torch.Tensor]]) -> None:
        """All of them before anybody gets the turn."""
        for key, tensors in by_key.items():
            self._write(key, tensors)
        for key in by_key:
            self._turn.kept(key)

    def _value(self, key: str, tensors: list[torch.Tensor], like: str = "", *, needed: bool = True) -> None:
        self._write(key, tensors, like, needed=needed)
        self._turn.kept(key)

    def _write(self, key: str, tensors: list[torch.Tensor], like: str = "", *, needed: bool = True) -> None:
        control = is_control(tensors)
        statistics = None if control else _statistics(tensors)
        if needed or control:
            parts = [as_bytes(t) for t in tensors]
            self._writer.keep(key, parts, control=control, statistics=statistics, like=like)
        else:
            size = bytes_of(tensors)
            self._writer.pass_over(key, size, statistics, like)


class KeptAlready:
    """The outbox of a pass whose ranks' values were kept by an earlier one: nothing is looked at or written."""

    def keep(self, call: Call, identity: Identity, axis: str, members: list[int], *, meets: bool = False) -> None:
        pass

    def keep_key(self, name: str, value: bytes) -> None:
        pass

    def tally(self) -> dict[str, int]:
        return {}


class Inbox:
    """Finds what this rank receives: the very value kept by its sender, else a similar one of another run."""

    def __init__(self, settings: Emulation) -> None:
        self._rank = settings.rank
        self._is_exact = settings.is_exact
        self._own_run = DonorReader(Path(settings.donors), settings.rank)
        self._other_run = DonorReader(Path(settings.external)) if settings.external else None
        self._received: Counter[tuple[str, int, int]] = Counter()

    def address(self, call: Call, identity: Identity, axis: str) -> ValueAddress:
        """Called once for each: transfers from one sender under one tag are counted, also where any was received."""
        if call.spec.movement is Movement.BROADCAST:
            like = collective_key(axis, identity.seq)
            return ValueAddress(key=collective_key(call.group_name, identity.seq), like=like, source=call.root)
        if call.spec.movement is Movement.SCATTER:
            return ValueAddress(key=scattered_key(call, identity, self._rank), like="", source=call.root)
        source = self._first_waiting(call) if call.spec.is_from_any else call.root
        key, like = self._next_from(call, source, call.group_name), self._next_from(call, source, axis)
        self._received[call.group_name, source, call.tag] += 1
        return ValueAddress(key=key, like=like, source=source, offset=source - call.rank)

    def _first_waiting(self, call: Call) -> int:
        """Of a receive from any: one after the other, those first whose value is known."""
        others = [(call.rank + away) % call.size for away in range(1, call.size)] or [call.rank]

        def order(source: int) -> tuple[int, bool]:
            is_unknown = self._own_run.find(self._next_from(call, source, call.group_name)) is None
            return self._received[call.group_name, source, call.tag], is_unknown

        return min(others, key=order)

    def _next_from(self, call: Call, source: int, group: str) -> str:
        nth = self._received[call.group_name, source, call.tag]
        return sent_key(group, source, call.rank, call.tag, nth)

    def find(self, call: Call, identity: Identity, axis: str, letter: ValueAddress) -> DonorValue | None:
        value = self._own_run.find(letter.key)
        if value is None and not self._is_exact:
            value = self._own_run.find_like(letter.like)
        if value is None or not value.size_bytes:  # nothing, or no more than its statistics
            value = self._sent_before(letter) or self.find_similar(call, identity, axis, letter.offset) or value
        return value

    def _sent_before(self, letter: ValueAddress) -> DonorValue | None:
        """What the sender, or one alike in another group over the same axes, sent in an emulation before."""
        if self._other_run is None:
            return None
        return self._other_run.find(earlier_key(letter.key)) or self._other_run.find(earlier_key(letter.like))

    def find_similar(self, call: Call, identity: Identity, axis: str, offset: int = 0) -> DonorValue | None:
        """What this very rank received in the other run, where that had as many ranks; else any of them."""
        if self._other_run is None:
            return None
        similar = similar_key(axis, call.spec.label, identity.seq, offset)
        return self._other_run.find(received_key(similar, self._rank)) or self._other_run.find(similar)

    def contributions(self, call: Call, identity: Identity, members: list[int]) -> dict[int, bytes]:
        """By place in the group, what other ranks said in this very gathering of objects."""
        found, known = {}, self._own_run.ranks
        for place, rank in enumerate(members):
            if rank in known:
                value = self._own_run.find(contributed_key(call, identity, place))
                if value is not None:
                    found[place] = self._own_run.load(value)
        return found

    def contribution(self, key: str) -> DonorValue | None:
        """What a member of this run sent, else what it sent in the same collective of an emulation before this one."""
        value = self._own_run.find(key)
        if value is None and self._other_run is not None:
            value = self._other_run.find(earlier_key(key))
        return value

    def load(self, value: DonorValue) -> bytes:
        similar = self._other_run is not None and value.key.startswith("~")
        reader = self._other_run if similar and self._other_run is not None else self._own_run
        return reader.load(value)

    def refresh(self) -> None:
        self._own_run.refresh()

    def store_value(self, name: str) -> bytes | None:
        """What another rank has set in the store."""
        value = self._own_run.find(store_key(name))
        return self._own_run.load(value) if value is not None else None


def scattered_key(call: Call, identity: Identity, rank: int) -> str:
    return f"{collective_key(call.group_name, identity.seq)}@{rank}"


def _statistics(tensors: list[torch.Tensor]) -> tuple[float, float] | None:
    """Mean and standard deviation of all elements; none of what is not finite."""
    flat = [(t.detach().abs() if t.is_complex() else t.detach()).float() for t in tensors if t.numel()]
    if not flat:
        return None
    count = sum(int(t.numel()) for t in flat)
    mean = sum(float(t.sum(dtype=torch.float64)) for t in flat) / count
    square = sum(float(t.square().sum(dtype=torch.float64)) for t in flat) / count
    deviation = max(square - mean * mean, 0.0) ** 0.5
    return (mean, deviation) if mean == mean and deviation < float("inf") else None
