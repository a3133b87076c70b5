"""Steps that a program marks by hand: numbers only go up, and a wrong one changes nothing for the program."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from prismdbg.capsule.log.format import StepSource
from prismdbg.rank.recording.steps import StepCounter


def marked(*numbers: Any) -> list[int]:
    counter, begun = StepCounter(), []
    counter.listen(lambda step, _: begun.append(step))
    for number in numbers:
        counter.mark(number)
    return begun


@pytest.mark.parametrize(
    ("numbers", "begun"),
    [
        ((0, 1, 2), [0, 1, 2]),
        ((1, 5, 9), [1, 5, 9]),
        ((0, 0, 1, 1, 1, 2), [0, 1, 2]),
        ((3, 2, 1, 4), [3, 4]),
        ((5, 5, 4, 5, 6), [5, 6]),
        ((-1, 1), [1]),
        ((1, 1 << 32, 2), [1, 2]),
        ((torch.tensor(3), 4), [3, 4]),
    ],
)
def test_a_step_begins_once_and_none_before_it_afterwards(numbers: tuple[Any, ...], begun: list[int]) -> None:
    assert marked(*numbers) == begun


@pytest.mark.parametrize("wrong", [-1, 2.5, "7", None, 1 << 40])
def test_what_is_no_step_is_ignored(wrong: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert marked(wrong, 1) == [1]
    assert "is ignored: a step is a whole number" in capfd.readouterr().err


def test_a_step_that_cannot_even_be_shown_is_ignored(capfd: pytest.CaptureFixture[str]) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("not today")

    StepCounter().mark(Odd())  # type: ignore[arg-type]
    assert capfd.readouterr().err.startswith("prismdbg: prismdbg.step(Odd) is ignored: ")


def test_it_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    marked(5, 4, 3, -1, 2)
    assert (
        capfd.readouterr().err
        == "prismdbg: prismdbg.step(4) is ignored: step 5 has begun already, and steps only go up\n"
    )


def test_optimizer_steps_no_longer_count() -> None:
    counter, begun = StepCounter(), []
    counter.listen(lambda step, _: begun.append(step))
    counter.mark(0)
    counter._after_optimizer(object.__new__(torch.optim.SGD))
    assert begun == [0]


@pytest.fixture
def scaling() -> Iterator[StepCounter]:
    methods = torch.amp.GradScaler.__init__, torch.amp.GradScaler.step
    counter = StepCounter()
    counter._wrap_scaler()
    hook = register_optimizer_step_post_hook(counter._after_optimizer)
    yield counter
    hook.remove()
    torch.amp.GradScaler.__init__, torch.amp.GradScaler.step = methods  # type: ignore[method-assign]


class Heard:
    """What is told of a program's scalers, with a name for `found`."""

    def __init__(self, told: list[str], name: str = "found") -> None:
        self._told, self._name = told, name
        self.issued = False

    def found(self) -> None:
        self._told.append(self._name)

    def has_several(self) -> None:
        self._told.append("several")

    def has_collectives(self) -> bool:
        return self.issued

    def skipped(self, step: int, optimizer: int) -> None:
        self._told.append(f"skipped {optimizer} in {step}")

    def taken(self, optimizer: int) -> None:
        self._told.append(f"taken {optimizer}")


def test_that_gradients_are_scaled_is_told_once_whoever_comes_first(scaling: StepCounter) -> None:
    told: list[str] = []
    scaling.listen_to_scaler(Heard(told, "before"))
    torch.amp.GradScaler("cpu", enabled=False)
    assert told == []
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    assert scaler.get_scale() == 4.0 and told == ["before"]
    torch.amp.GradScaler("cpu")
    assert told == ["before"]
    scaling.listen_to_scaler(Heard(told, "after"))
    assert told == ["before", "after"]


def test_a_step_that_the_scaler_skipped_is_told_where_steps_are_marked_by_hand(scaling: StepCounter) -> None:
    begun: list[tuple[int, StepSource]] = []
    scaling.listen(lambda step, source: begun.append((step, source)))
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer, scaler = torch.optim.SGD([parameter], lr=0.1), torch.amp.GradScaler("cpu")
    for step, factor in ((10, 1.0), (20, float("inf")), (30, 1.0), (40, 1.0)):
        scaling.mark(step)
        scaler.scale(parameter.sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    manual, skipped = StepSource.MANUAL, StepSource.SKIPPED_BY_SCALER
    assert begun == [(10, manual), (20, manual), (30, skipped), (40, manual)]


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("overflows", [0, 1])
def test_what_happens_to_a_second_optimizer_is_told_by_the_step_of_its_gradients(
    scaling: StepCounter, in_turn: bool, overflows: int
) -> None:
    """in_turn: the second loss comes after the first optimizer, in the step that this has begun."""
    told: list[str] = []
    heard = Heard(told)
    scaling.listen_to_scaler(heard)
    scaling.listen(lambda step, source: told.append(f"{step} {source.name}"))
    parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    optimizers = [torch.optim.SGD([parameter], lr=0.1) for parameter in parameters]
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(3):
        for number, (parameter, optimizer) in enumerate(zip(parameters, optimizers, strict=True)):
            factor = float("inf") if (step, number) == (1, overflows) else 1.0
            scaler.scale(parameter.sum() * factor).backward()
            if in_turn:
                heard.issued = True
                scaler.step(optimizer)
        for optimizer in () if in_turn else optimizers:
            heard.issued = optimizer is optimizers[0]
            scaler.step(optimizer)
        scaler.update()
        for optimizer in optimizers:
            optimizer.zero_grad()
    first = ["2 OPTIMIZER", f"skipped 1 in {2 if in_turn else 1}"] if overflows else ["2 SKIPPED_BY_SCALER"]
    assert told == ["found", "1 OPTIMIZER", "several", *first, "3 OPTIMIZER", *["taken 1"] * overflows]
    again: list[str] = []
    scaling.listen_to_scaler(Heard(again))
    assert again == ["found", "several"]


def test_an_object_that_is_no_optimizer_of_torch_is_not_called_skipped(scaling: StepCounter) -> None:
    class Own:
        param_groups: list[Any] = []

        def step(self) -> None: ...

    told: list[str] = []
    scaling.listen_to_scaler(Heard(told))
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer, scaler = torch.optim.SGD([parameter], lr=0.1), torch.amp.GradScaler("cpu")
    own = Own()
    own.param_groups = optimizer.param_groups
    scaler.scale(parameter.sum()).backward()
    for one in (optimizer, own):
        scaler.step(one)  # type: ignore[arg-type]
    assert told == ["found", "several"]


class Slotted:
    """No optimizer of torch, and nothing refers to it weakly."""

    __slots__ = ("param_groups", "state")

    def __init__(self, parameter: torch.nn.Parameter) -> None:
        self.param_groups = [{"params": [parameter]}]

    def step(self) -> None:
        pass


@dataclass
class Compared(torch.optim.SGD):
    """Has no hash, as any class that compares by value."""

    number: int

    def __post_init__(self) -> None:
        super().__init__([torch.nn.Parameter(torch.ones(1))], lr=0.1)


class Asked(torch.optim.SGD):
    @property
    def optimizer(self) -> None:
        raise ValueError("not here")


def stepped(optimizers: list[Any], told: list[str], scaling: StepCounter) -> None:
    """The second step of each is skipped."""
    scaling.listen_to_scaler(Heard(told))
    scaling.listen(lambda step, source: told.append(f"{step} {source.name}"))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for factor in (1.0, float("inf"), 1.0):
        for optimizer in optimizers:
            (parameter,) = optimizer.param_groups[0]["params"]
            parameter.grad = None
            scaler.scale(parameter.sum() * factor).backward()
            scaler.step(optimizer)
        scaler.update()


def test_optimizers_of_any_class_are_stepped_as_without_us(scaling: StepCounter) -> None:
    parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(3)]
    told: list[str] = []
    plain, others = (
        torch.optim.SGD(parameters[:1], lr=0.1),
        [Compared(1), Asked(parameters[1:2]), Slotted(parameters[2])],
    )
    stepped([plain, *others], told, scaling)
    assert told == [
        "found", "1 OPTIMIZER", "several", "2 SKIPPED_BY_SCALER", "skipped 1 in 1", "3 OPTIMIZER", "taken 1"
    ]  # fmt: skip
    del others
    gc.collect()
    assert scaling._numbers == {}


def test_the_first_optimizer_may_be_of_any_class(scaling: StepCounter) -> None:
    parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    told: list[str] = []
    stepped([Slotted(parameters[0]), torch.optim.SGD(parameters[1:], lr=0.1)], told, scaling)
    assert [each for each in told if each[0].isdigit()] == [f"{step} SKIPPED_BY_SCALER" for step in (1, 2, 3)]
