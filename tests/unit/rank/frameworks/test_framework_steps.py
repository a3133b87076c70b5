"""Steps are counted as a framework counts them, on fakes of its classes; tests/frameworks has the real ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from prismdbg.capsule.log.format import StepSource
from prismdbg.rank.frameworks import adapters, step_calls
from prismdbg.rank.recording import state_hash
from prismdbg.rank.recording.scaler_notes import Nobody
from prismdbg.rank.recording.steps import StepCounter

TAKEN, SKIPPED = StepSource.OPTIMIZER, StepSource.SKIPPED_BY_SCALER


class Engine:
    """DeepSpeed's, with ZeRO's optimizer in it: it steps torch's once for each group of parameters."""

    def __init__(self, fp16: bool = True, groups: int = 2) -> None:
        self.basic_optimizer: Any = sgd()
        self.basic_optimizer.step()  # it makes the optimizer's state
        self.optimizer = SimpleNamespace(overflow=False)
        self._fp16, self._groups = fp16, groups

    def fp16_enabled(self) -> bool:
        return self._fp16

    def step(self, *, overflow: bool = False, is_boundary: bool = True) -> None:
        self.optimizer.overflow = overflow
        if is_boundary:
            self._take_model_step({})

    def _take_model_step(self, lr_kwargs: dict[str, Any]) -> str:
        for _ in range(0 if self.optimizer.overflow else self._groups):
            self.basic_optimizer.step()
        return f"stepped with {lr_kwargs}"


class MixedPrecisionOptimizer:
    """megatron-core's. optimizer: None on a stage whose parameters are all frozen."""

    def __init__(self, optimizer: Any, grad_scaler: Any = "dynamic") -> None:
        self.optimizer, self.grad_scaler, self.param_groups = optimizer, grad_scaler, []

    def step(self, found_inf: bool = False) -> tuple[bool, float | None, None]:
        if found_inf:
            return False, None, None
        if self.optimizer is not None:
            self.optimizer.step()
        return True, 1.0, None


class ChainedOptimizer:
    def __init__(self, chained: list[MixedPrecisionOptimizer]) -> None:
        self.chained_optimizers = chained

    @property
    def optimizer(self) -> Any:
        raise AssertionError

    def step(self, found_inf: bool = False) -> tuple[bool, float | None, None]:
        return [one.step(found_inf) for one in self.chained_optimizers][-1]


class Steps(Nobody):
    """What a counter says."""

    def __init__(self, counter: StepCounter) -> None:
        self.begun: list[tuple[int, StepSource]] = []
        self.scalers = 0
        counter.listen(lambda step, source: self.begun.append((step, source)))
        counter.listen_to_scaler(self)

    def found(self) -> None:
        self.scalers += 1

    @property
    def sources(self) -> list[StepSource]:
        assert [step for step, _ in self.begun] == list(range(1, len(self.begun) + 1))
        return [source for _, source in self.begun]


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[StepCounter]:
    counter = StepCounter()
    monkeypatch.setattr(step_calls, "COUNTER", counter)
    hook = register_optimizer_step_post_hook(counter._after_optimizer)
    yield counter
    hook.remove()


@pytest.fixture
def steps(counter: StepCounter) -> Steps:
    return Steps(counter)


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])


def imported(monkeypatch: pytest.MonkeyPatch, name: str, *kinds: type) -> ModuleType:
    """A module of copies of these classes, as after its import."""
    module = ModuleType(name)
    vars(module).update({kind.__name__: type(kind.__name__, (), dict(vars(kind))) for kind in kinds})
    monkeypatch.setitem(sys.modules, name, module)
    adapters.imported(name)
    return module


@pytest.fixture
def engine_of(counter: StepCounter, monkeypatch: pytest.MonkeyPatch) -> Any:
    class DeepSpeedEngine:
        locals().update({name: value for name, value in vars(Engine).items() if callable(value)})

    return imported(monkeypatch, "deepspeed.runtime.engine", DeepSpeedEngine).DeepSpeedEngine


@pytest.fixture
def megatron(counter: StepCounter, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return imported(monkeypatch, "megatron.core.optimizer.optimizer", MixedPrecisionOptimizer, ChainedOptimizer)


def test_deepspeed_counts_a_step_that_it_skips_and_one_for_all_groups(steps: Steps, engine_of: Any) -> None:
    engine = engine_of()
    assert steps.scalers == 1 and steps.begun == []
    for overflow in (True, False, True, False):
        engine.step(is_boundary=False)
        engine.step(overflow=overflow)
    assert steps.sources == [SKIPPED, TAKEN, SKIPPED, TAKEN]
    assert engine._take_model_step(1) == "stepped with 1"


def test_without_a_loss_scaler_a_skipped_step_is_no_overflow(steps: Steps, engine_of: Any) -> None:
    engine_of(fp16=False).step(overflow=True)
    assert steps.sources == [TAKEN] and steps.scalers == 0


def test_steps_are_those_of_the_first_engine(steps: Steps, engine_of: Any) -> None:
    first, second = engine_of(), engine_of()
    first.step(overflow=True)
    for overflow in (True, False):
        second.step(overflow=overflow)
    first.step()
    assert steps.sources == [SKIPPED, TAKEN]


def test_a_step_that_the_engine_skips_is_told_where_steps_are_marked_by_hand(
    counter: StepCounter, steps: Steps, engine_of: Any
) -> None:
    engine = engine_of()
    for step, overflow in ((10, False), (20, True), (30, False), (40, False)):
        counter.mark(step)
        engine.step(overflow=overflow)
    assert steps.begun == [(10, StepSource.MANUAL), (20, StepSource.MANUAL), (30, SKIPPED), (40, StepSource.MANUAL)]


def test_an_engine_that_names_everything_otherwise_is_counted_by_its_calls(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    class DeepSpeedEngine:
        def __init__(self) -> None:
            self.inner = sgd()

        def _take_model_step(self) -> None:
            self.inner.step()

    engine = imported(monkeypatch, "deepspeed.runtime.engine", DeepSpeedEngine).DeepSpeedEngine()
    for _ in range(2):
        engine._take_model_step()
    assert steps.sources == [TAKEN, TAKEN]


def test_a_version_without_the_method_is_left_as_it_is(counter: StepCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    class DeepSpeedEngine:
        def __init__(self) -> None: ...

    module = imported(monkeypatch, "deepspeed.runtime.engine", DeepSpeedEngine)
    assert module.DeepSpeedEngine.__init__ is DeepSpeedEngine.__init__


def test_a_module_without_the_class_is_said_on_one_line(
    counter: StepCounter, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    imported(monkeypatch, "deepspeed.runtime.engine")
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(
        "prismdbg: the steps of deepspeed.runtime.engine are counted by its calls of torch's optimizer"
    )


def test_a_call_that_raises_ends_no_step(steps: Steps, engine_of: Any) -> None:
    engine = engine_of()
    del engine.optimizer
    with pytest.raises(AttributeError):
        engine._take_model_step({})
    engine.optimizer = SimpleNamespace()
    engine.step()
    engine.step()
    assert steps.sources == [TAKEN, TAKEN]


@pytest.mark.parametrize("chained", [0, 1, 2])
def test_megatron_core_counts_a_step_that_it_skips(steps: Steps, megatron: ModuleType, chained: int) -> None:
    parts = [megatron.MixedPrecisionOptimizer(sgd()) for _ in range(max(chained, 1))]
    optimizer = megatron.ChainedOptimizer(parts) if chained else parts[0]
    assert steps.scalers == 1
    assert optimizer.step(True) == (False, None, None)
    assert optimizer.step() == (True, 1.0, None)
    assert optimizer.step(found_inf=True) == (False, None, None)
    assert steps.sources == [SKIPPED, TAKEN, SKIPPED]


@pytest.mark.parametrize("scaler", ["dynamic", None])
def test_megatron_core_counts_steps_of_a_stage_that_has_nothing_to_train(
    counter: StepCounter, steps: Steps, megatron: ModuleType, scaler: str | None
) -> None:
    optimizer = megatron.ChainedOptimizer([megatron.MixedPrecisionOptimizer(None, scaler)])
    for found_inf in (False, True, False):
        optimizer.step(found_inf)
    assert steps.sources == [TAKEN, SKIPPED if scaler else TAKEN, TAKEN]
    assert counter.optimizer is not None and counter.optimizer() is optimizer
    assert state_hash.of(optimizer) is None
