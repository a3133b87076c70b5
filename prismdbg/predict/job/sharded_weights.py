"""ZeRO 2 and 3 (Rajbhandari et al., arXiv 1910.02054, section 5), in the order of PyTorch's FSDP2: the gradients of the
embedding, of each layer and of the output are reduced while the next unit computes, in each backward pass. With ZeRO 3
weights are gathered before each pass, while the unit before computes, and freed after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from prismdbg.predict.model.memory import Parameters, layer_parameters
from prismdbg.predict.model.model import Model
from prismdbg.predict.model.training import DP, Training


class Unit(StrEnum):
    """What is gathered at once."""

    EMBEDDING = "embedding"
    LAYER = "layer"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Does:
    """What a stage's writer does for the units. collective: operation, parameters, bytes of each; it is not waited for
    and gives its entries."""

    collective: Callable[[str, Parameters, int], list[int]]
    wait: Callable[[int], None]
    allocate: Callable[[int], None]


class ShardedWeights:
    """`through` runs units in their order. Without ZeRO 3 nothing is gathered, without ZeRO 2 nothing reduced here."""

    def __init__(self, model: Model, training: Training, does: Does) -> None:
        self._gathers, self._reduces = training.zero >= 3, training.zero >= 2
        self._gradient_bytes, self._value_bytes = training.gradient_bytes, training.value_bytes
        self._does = does
        table = Parameters(dense=model.table_parameters // training.tp)
        layer = layer_parameters(model, training)
        if training.sizes[DP] == 1:  # then nobody else has this rank's experts: they are not divided
            layer = replace(layer, experts=0)
        self._weights = {Unit.EMBEDDING: table, Unit.OUTPUT: table, Unit.LAYER: layer}
        # One table for both on one stage: its gradient is reduced once, after the last use.
        is_shared = model.is_tied and training.pp == 1
        self._gradients = self._weights | ({Unit.OUTPUT: Parameters()} if is_shared else {})

    def through(self, units: Sequence[Unit], *, backward: bool) -> Iterator[Unit]:
        gathered = self._gathered(units) if self._gathers else iter(units)
        return self._reduced(gathered) if backward and self._reduces else gathered

    def _gathered(self, units: Sequence[Unit]) -> Iterator[Unit]:
        entries = self._gather(units[0])
        for number, unit in enumerate(units):
            self._wait(entries)
            entries = self._gather(units[number + 1]) if number + 1 < len(units) else []
            yield unit
            self._does.allocate(-self._bytes(self._weights[unit], self._value_bytes))

    def _reduced(self, units: Iterator[Unit]) -> Iterator[Unit]:
        entries: list[int] = []
        before: Unit | None = None
        for unit in units:
            self._does.allocate(self._bytes(self._gradients[unit], self._gradient_bytes))
            yield unit
            self._free(entries, before)
            before = unit
            entries = self._does.collective("reduce_scatter", self._gradients[unit], self._gradient_bytes)
        self._free(entries, before)

    def _gather(self, unit: Unit) -> list[int]:
        self._does.allocate(self._bytes(self._weights[unit], self._value_bytes))
        return self._does.collective("all_gather", self._weights[unit], self._value_bytes)

    def _free(self, entries: list[int], unit: Unit | None) -> None:
        """The gradients of a unit, once they are reduced."""
        self._wait(entries)
        if unit is not None:
            self._does.allocate(-self._bytes(self._gradients[unit], self._gradient_bytes))

    def _wait(self, entries: list[int]) -> None:
        for entry in entries:
            self._does.wait(entry)

    @staticmethod
    def _bytes(parameters: Parameters, item_bytes: int) -> int:
        return (parameters.dense + parameters.experts) * item_bytes
