"""ZeRO 3 (Rajbhandari et al., arXiv 1910.02054, section 5.3), in the order of PyTorch's FSDP2: the weights of the
embedding, of each layer and of the output are gathered before each pass and freed after it; those of the next unit are
gathered, and the gradients of the one before are reduced, while a unit computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from prismdbg.predict.model.memory import Parameters, layer_parameters
from prismdbg.predict.model.model import Model
from prismdbg.predict.model.training import Training


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
    """`through` runs units in their order. Without ZeRO 3 nothing is gathered or reduced here."""

    def __init__(self, model: Model, training: Training, does: Does) -> None:
        self._is_on = training.zero >= 3
        self._gradient_bytes, self._value_bytes = training.gradient_bytes, training.value_bytes
        self._does = does
        table = Parameters(dense=model.table_parameters // training.tp)
        self._weights = {Unit.EMBEDDING: table, Unit.OUTPUT: table, Unit.LAYER: layer_parameters(model, training)}
        # One table for both on one stage: its gradient is reduced once, after the last use.
        is_shared = model.is_tied and training.pp == 1
        self._gradients = self._weights | ({Unit.OUTPUT: Parameters()} if is_shared else {})

    def through(self, units: Sequence[Unit], *, backward: bool) -> Iterator[Unit]:
        if not self._is_on:
            yield from units
            return
        reduced: list[int] = []
        before: Unit | None = None
        gathered = self._gather(units[0])
        for number, unit in enumerate(units):
            self._wait(gathered)
            gathered = self._gather(units[number + 1]) if number + 1 < len(units) else []
            if backward:
                self._does.allocate(self._bytes(self._gradients[unit], self._gradient_bytes))
            yield unit
            self._does.allocate(-self._bytes(self._weights[unit], self._value_bytes))
            if backward:
                self._reduced(reduced, before)
                before, reduced = (
                    unit,
                    self._does.collective("reduce_scatter", self._gradients[unit], self._gradient_bytes),
                )
        self._reduced(reduced, before)

    def _gather(self, unit: Unit) -> list[int]:
        self._does.allocate(self._bytes(self._weights[unit], self._value_bytes))
        return self._does.collective("all_gather", self._weights[unit], self._value_bytes)

    def _reduced(self, entries: list[int], unit: Unit | None) -> None:
        self._wait(entries)
        if unit is not None:
            self._does.allocate(-self._bytes(self._gradients[unit], self._gradient_bytes))

    def _wait(self, entries: list[int]) -> None:
        for entry in entries:
            self._does.wait(entry)

    @staticmethod
    def _bytes(parameters: Parameters, item_bytes: int) -> int:
        return (parameters.dense + parameters.experts) * item_bytes
