"""The peers of an emulated rank: they answer every collective by policy, and keep what this rank sends for others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from prismdbg.model.collective import Identity
from prismdbg.rank.call import Call
from prismdbg.rank.emulation import filling
from prismdbg.rank.emulation.axes import Axes
from prismdbg.rank.emulation.control import holds_it_already, is_control, object_call
from prismdbg.rank.emulation.donors import (
    DonorReader,
    DonorValue,
    DonorWriter,
    collective_key,
    sent_key,
    similar_key,
)
from prismdbg.rank.emulation.need import Need, say_need
from prismdbg.rank.emulation.settings import Emulation, Policy
from prismdbg.rank.fingerprint import as_bytes
from prismdbg.rank.quiet import quiet

_GIVEN = frozenset({"broadcast_", "scatter_", "recv_", "recv_any_source_"})  # what only the sender knows
_ROOTED = frozenset({"broadcast_", "scatter_"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """How it was answered. `source`: the sender of a receive from any."""

    how: str
    source: int = -1


class EmulatedPeers:
    """`answer` is called once for every collective, on the issuing thread."""

    def __init__(self, settings: Emulation) -> None:
        self._settings = settings
        self._axes = Axes(settings.axes)
        self._donors = DonorReader(Path(settings.donors), settings.rank)
        self._external = DonorReader(Path(settings.external)) if settings.external else None
        self._outbox = DonorWriter(Path(settings.donors), settings.rank, settings.donor_bytes)
        self._members: dict[str, list[int]] = {}
        self._taken: set[str] = set()
        self.tally: Counter[tuple[str, str, str]] = Counter()
        self.tally_bytes: Counter[tuple[str, str, str]] = Counter()

    def answer(self, call: Call, identity: Identity) -> Answered:
        axis = self._axes.name_of(call.group_name, self.members(call))
        with quiet():
            self._keep(call, identity)
            answered = self._fill(call, identity, axis)
        entry = axis, call.spec.label, answered.how
        self.tally[entry] += 1
        self.tally_bytes[entry] += _bytes_of(call.received)
        return answered

    def members(self, call: Call) -> list[int]:
        """Global ranks in group order."""
        known = self._members.get(call.group_name)
        if known is None:
            try:
                known = list(dist.get_process_group_ranks(call.group))
            except (KeyError, ValueError):  # the world's group while it is being made
                known = list(range(call.size))
            self._members[call.group_name] = known
        return known

    # what this rank receives

    def _fill(self, call: Call, identity: Identity, axis: str) -> Answered:
        outputs = [t.detach() for t in call.received]
        inputs = [t.detach() for t in call.inputs]
        policy = self._settings.policy(axis, call.spec.label)
        if call.spec.name in _GIVEN:
            return self._given(call, identity, axis, policy, outputs)
        if not outputs:
            return Answered(how="nothing received")
        if policy is Policy.ZEROS:
            filling.zeros(outputs)
        elif policy is Policy.NOISE:
            filling.noise(outputs, self._seed(identity))
        elif policy is Policy.BALANCED and call.spec.name in filling.EXCHANGES and is_control(outputs):
            filling.balanced(outputs, inputs)
        elif policy is Policy.DONOR:
            self._of_donor(call, identity, axis, outputs)
        else:
            return self._echo(call, identity, outputs, inputs)
        return Answered(how=str(policy))

    def _echo(
        self, call: Call, identity: Identity, outputs: list[torch.Tensor], inputs: list[torch.Tensor]
    ) -> Answered:
        filling.echo(call, outputs, inputs)
        gathers = call.spec.name in ("allgather_", "gather_")
        if gathers and is_control(outputs) and object_call() and self._contributed(call, identity, outputs):
            return Answered(how="echo and donor")
        return Answered(how="echo")

    def _contributed(self, call: Call, identity: Identity, outputs: list[torch.Tensor]) -> bool:
        """Puts in what other emulated ranks said in this very collective."""
        found = False
        for place, rank in enumerate(self.members(call)):
            if rank in self._donors.ranks and rank != self._settings.rank:
                value = self._donors.find(_contribution(call, identity, place))
                if value is not None:
                    _pour(outputs[place], self._donors.load(value))
                    found = True
        return found

    def _given(
        self, call: Call, identity: Identity, axis: str, policy: Policy, outputs: list[torch.Tensor]
    ) -> Answered:
        source = call.root if call.spec.name != "recv_any_source_" else self._any_source(call, identity)
        if not any(t.numel() for t in outputs):
            return Answered(how="nothing received", source=source)
        if call.root == call.rank and call.inputs:  # the root of a scatter keeps its own part
            outputs[0].copy_(call.inputs[call.rank].detach())
            return Answered(how="own", source=source)
        how = self._given_how(call, identity, axis, policy, outputs, source)
        return Answered(how=how, source=source)

    def _given_how(
        self, call: Call, identity: Identity, axis: str, policy: Policy, outputs: list[torch.Tensor], source: int
    ) -> str:
        value = self._donated(call, identity, axis, source) if policy in (Policy.AUTO, Policy.DONOR) else None
        if value is not None and self._matches(value, outputs):
            self._load_into(value, outputs)
            return "donor"
        if policy is Policy.ECHO or (policy is Policy.AUTO and call.spec.name == "broadcast_" and holds_it_already()):
            filling.echo(call, outputs, [])
            return "echo"
        if policy is Policy.ZEROS:
            filling.zeros(outputs)
            return "zeros"
        if policy is Policy.DONOR or (policy is Policy.AUTO and is_control(outputs)):
            self._lacks(call, identity, axis, source)
        known = value or self._donated(call, identity, axis, source)
        mean, deviation = (known.mean, known.deviation) if known is not None else (None, None)
        if mean is None or deviation is None:
            filling.noise(outputs, self._seed(identity))
            return "noise"
        filling.noise(outputs, self._seed(identity), mean, deviation)
        return "noise like the donor"

    def _of_donor(self, call: Call, identity: Identity, axis: str, outputs: list[torch.Tensor]) -> None:
        value = self._find_external(similar_key(axis, call.spec.label, identity.seq))
        if value is None or not value.size_bytes:
            self._lacks(call, identity, axis, -1)
        assert value is not None
        self._load_into(value, outputs)

    def _any_source(self, call: Call, identity: Identity) -> int:
        """The rank whose transfer to this one is known and was not taken yet, else the next rank."""
        for source in range(call.size):
            if self._find(sent_key(call.group_name, source, call.rank, call.tag, self._nth(call, source))) is not None:
                self._taken.add(f"{call.group_name}|{source}|{call.tag}|{self._nth(call, source)}")
                return source
        return (call.rank + 1) % call.size

    def _nth(self, call: Call, source: int) -> int:
        nth = 0
        while f"{call.group_name}|{source}|{call.tag}|{nth}" in self._taken:
            nth += 1
        return nth

    def _donated(self, call: Call, identity: Identity, axis: str, source: int) -> DonorValue | None:
        """The very value, kept by the rank that sends it, else a similar one of another run."""
        offset = 0
        if call.spec.name in _ROOTED:
            key = collective_key(call.group_name, identity.seq)
            if call.spec.name == "scatter_":
                key += f"@{self._settings.rank}"
        elif call.spec.name == "recv_":
            key = sent_key(call.group_name, source, call.rank, call.tag, identity.seq)
            offset = source - call.rank
        else:
            key = sent_key(call.group_name, source, call.rank, call.tag, max(self._nth(call, source) - 1, 0))
        return self._find(key) or self._find_external(similar_key(axis, call.spec.label, identity.seq, offset))

    def _find(self, key: str) -> DonorValue | None:
        return self._donors.find(key)

    def _find_external(self, key: str) -> DonorValue | None:
        return self._external.find(key) if self._external is not None else None

    @staticmethod
    def _matches(value: DonorValue, outputs: list[torch.Tensor]) -> bool:
        return value.size_bytes == _bytes_of(outputs)

    def _load_into(self, value: DonorValue, outputs: list[torch.Tensor]) -> None:
        reader = self._external if self._external is not None and value.key.startswith("~") else self._donors
        data = memoryview(reader.load(value))
        for tensor in outputs:
            size = tensor.numel() * tensor.element_size()
            _pour(tensor, data[:size])
            data = data[size:]

    def _seed(self, identity: Identity) -> int:
        return filling.seed_of(self._settings.seed, self._settings.rank, identity)

    def _lacks(self, call: Call, identity: Identity, axis: str, source: int) -> None:
        known = 0 <= source < call.size and call.spec.name != "recv_any_source_"
        say_need(
            self._settings,
            Need(
                rank=self._settings.rank,
                source=self.members(call)[source] if known else -1,
                collective=call.spec.label,
                caller=object_call(),
                axis=axis,
                identity=str(identity),
            ),
        )

    # what this rank sends

    def _keep(self, call: Call, identity: Identity) -> None:
        name = call.spec.name
        if name == "send":
            key = sent_key(call.group_name, call.rank, call.root, call.tag, identity.seq)
            self._keep_value(key, call.inputs)
        elif name == "broadcast_" and call.root == call.rank:
            self._keep_value(collective_key(call.group_name, identity.seq), call.inputs)
        elif name == "scatter_" and call.root == call.rank:
            key = collective_key(call.group_name, identity.seq)
            for place, rank in enumerate(self.members(call)):
                if rank in self._settings.asked:
                    self._keep_value(f"{key}@{rank}", [call.inputs[place]])
        elif name in ("allgather_", "gather_") and is_control(call.inputs) and object_call():
            self._keep_value(_contribution(call, identity, call.rank), call.inputs)

    def _keep_value(self, key: str, tensors: list[torch.Tensor]) -> None:
        control = is_control(tensors)
        statistics = None if control else _statistics(tensors)
        self._outbox.keep(key, [as_bytes(t) for t in tensors], control=control, statistics=statistics)

    def keep_key(self, name: str, value: bytes) -> None:
        self._outbox.keep_key(name, value)

    def store_keys(self) -> dict[str, bytes]:
        return self._donors.store_keys()

    def summary(self) -> list[dict[str, Any]]:
        """What was made up, and how: a row for each axis, collective and way."""
        return [
            {"axis": axis, "collective": label, "how": how, "count": count, "bytes": self.tally_bytes[axis, label, how]}
            for (axis, label, how), count in sorted(self.tally.items())
        ]


def _bytes_of(tensors: list[torch.Tensor]) -> int:
    return sum(int(t.numel()) * int(t.element_size()) for t in tensors)


def _contribution(call: Call, identity: Identity, place: int) -> str:
    return f"{collective_key(call.group_name, identity.seq)}<{place}"


def _statistics(tensors: list[torch.Tensor]) -> tuple[float, float] | None:
    """Mean and standard deviation of all elements; none of what is not finite."""
    flat = [t.detach().abs() if t.is_complex() else t.detach() for t in tensors if t.numel()]
    if not flat:
        return None
    count = sum(t.numel() for t in flat)
    mean = sum(float(t.float().sum(dtype=torch.float64)) for t in flat) / count
    square = sum(float(t.float().square().sum(dtype=torch.float64)) for t in flat) / count
    deviation = max(square - mean * mean, 0.0) ** 0.5
    return (mean, deviation) if mean == mean and deviation < float("inf") else None


def _pour(tensor: torch.Tensor, data: bytes | memoryview) -> None:
    """As many bytes as there are and fit; what is left of the tensor is zero."""
    size = tensor.numel() * tensor.element_size()
    source = (
        torch.frombuffer(bytearray(data[:size]), dtype=torch.uint8) if len(data) else torch.empty(0, dtype=torch.uint8)
    )
    whole = torch.zeros(size, dtype=torch.uint8)
    whole[: source.numel()] = source
    tensor.copy_(whole.view(tensor.dtype).view(tensor.shape))
