"""The adapters' own rules on small fake frameworks; tests/frameworks has the real ones."""

from __future__ import annotations

import gc
import importlib
import signal
import sys
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.testing._internal.distributed.fake_pg import FakeStore

from prismdbg.errors import UsageError
from prismdbg.rank.frameworks import accelerate_loop, adapters, lightning_loop, registration, transformers_trainer
from prismdbg.rank.program.imports import AfterImport
from prismdbg.rank.recording import restore_point
from prismdbg.rank.recording.steps import StepCounter


@dataclass
class Listener:
    """Who answers the restore point, and what it is told."""

    registered: list[dict[str, Any]] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)

    def reached(self, objects: dict[str, Any]) -> int | None:
        self.registered.append(objects)
        return None


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    for name in ("_handler", "_recorded", "_give_up", "_step", "_is_reached"):
        monkeypatch.setattr(restore_point, name, getattr(restore_point, name))
    monkeypatch.setattr(registration, "_owner", "")
    monkeypatch.setattr(registration, "COUNTER", StepCounter())
    found = Listener()
    restore_point.answer_with(found.reached, give_up=found.given_up.append)
    return found


@dataclass
class FakeState:
    global_step: int = 0
    log_history: list[Any] = field(default_factory=list)


def fake_trainer_module() -> Any:
    """The fake of a module: a Trainer that runs two steps of one batch each."""

    class Trainer:
        def __init__(self) -> None:
            self.state = FakeState()
            self.model_wrapped, self.optimizer, self.lr_scheduler = object(), object(), None
            self.accelerator = SimpleNamespace(scaler=None)
            self.callback_handler = SimpleNamespace(train_dataloader=[], callbacks=[])
            self.args = SimpleNamespace(ignore_data_skip=False)
            self.is_deepspeed_enabled = False
            self._tr_loss = self.current_flos = 0

        def _inner_training_loop(self, resume_from_checkpoint: str | None = None) -> list[int]:
            drawn, batches = [], iter([7, 8])
            for _ in range(2):
                drawn += self.get_batch_samples(batches, 1)
                self.state.global_step += 1
            return drawn

        def get_batch_samples(self, epoch_iterator: Any, count: int) -> list[int]:
            return [next(epoch_iterator) for _ in range(count)]

    return SimpleNamespace(Trainer=Trainer, TRAINER_STATE_NAME="trainer_state.json")


def test_a_fake_trainer_is_registered_at_the_top_of_its_loop(
    listener: Listener, capfd: pytest.CaptureFixture[str]
) -> None:
    module = fake_trainer_module()
    transformers_trainer.install(module)
    trainer = module.Trainer()
    assert trainer._inner_training_loop() == [7, 8]
    (objects,) = listener.registered
    assert list(objects) == ["model", "optimizer", "trainer"]
    assert objects["trainer"].state_dict()["counters"] == {"current_flos": 0}
    assert (registration.COUNTER.step, registration.COUNTER.by_hand) == (1, True)
    said = capfd.readouterr().err
    assert said.startswith("prismdbg: transformers.Trainer: registered: model, optimizer, trainer; not registered: ")
    assert "the log history" in said and said.count("\n") == 1


def test_a_second_training_goes_on_counting(listener: Listener, capfd: pytest.CaptureFixture[str]) -> None:
    module = fake_trainer_module()
    transformers_trainer.install(module)
    for _ in range(2):
        module.Trainer()._inner_training_loop()
    assert len(listener.registered) == 1 and registration.COUNTER.step == 2
    assert "ignored" not in capfd.readouterr().err
    assert listener.given_up == ["transformers.Trainer: a second training begins, whose state is not registered"]


def test_the_first_training_s_memory_is_free_when_another_begins(listener: Listener) -> None:
    module = fake_trainer_module()
    transformers_trainer.install(module)
    trainer: Any = module.Trainer()
    trainer._inner_training_loop()
    first = weakref.ref(trainer)
    del trainer
    listener.registered.clear()  # as the snapshots do where they end
    module.Trainer()._inner_training_loop()
    gc.collect()
    assert first() is None


def test_what_fails_ends_the_snapshots_and_not_the_job(listener: Listener) -> None:
    module = fake_trainer_module()
    transformers_trainer.install(module)
    trainer = module.Trainer()
    del trainer.callback_handler
    assert trainer._inner_training_loop() == [7, 8]
    assert listener.registered == []
    assert listener.given_up and "has no attribute 'callback_handler'" in listener.given_up[0]


def test_what_a_signal_s_handler_raises_meanwhile_is_for_the_program(listener: Listener) -> None:
    def handler(_number: int, _frame: Any) -> None:
        raise ValueError("preempted")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(ValueError, match="preempted"), registration.guarded("fake"):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert listener.given_up == []


def test_in_a_replay_it_is_an_error(listener: Listener) -> None:
    restore_point.answer_with(listener.reached, recorded=lambda name: None)
    with pytest.raises(UsageError, match="broken"), registration.guarded("fake"):
        raise UsageError("broken")


def test_a_program_that_registers_by_itself_is_left_alone(listener: Listener) -> None:
    module = fake_trainer_module()
    transformers_trainer.install(module)
    restore_point.reached({"model": 1})
    assert module.Trainer()._inner_training_loop() == [7, 8]
    assert len(listener.registered) == 1 and not registration.COUNTER.by_hand


def test_the_first_that_claims_registers(listener: Listener) -> None:
    assert registration.is_claimable("accelerate") and registration.claim("transformers.Trainer")
    assert not registration.is_claimable("accelerate") and not registration.claim("accelerate")


def test_no_adapter_is_loaded_where_nobody_wants_the_state(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(restore_point, "_handler", None)
    monkeypatch.setitem(adapters.MODULES, "fake.module", "no_such_adapter")
    adapters.imported("fake.module")
    assert capfd.readouterr().err == ""


def test_an_adapter_that_does_not_fit_is_said_on_one_line(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "transformers.trainer", SimpleNamespace())  # type: ignore[arg-type]
    adapters.imported("transformers.trainer")
    said = capfd.readouterr().err
    assert said.startswith("prismdbg: the state of transformers.trainer is not registered: ") and said.count("\n") == 1


def test_an_import_is_complete_before_it_is_told_and_survives_who_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fake_framework.py").write_text("early = 1\nlate = 2\n")
    seen: list[int] = []

    def imported(name: str) -> None:
        seen.append(sys.modules[name].late)
        raise ValueError("not today")

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [AfterImport(["fake_framework"], imported, "no adapter"), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "fake_framework", raising=False)
    module = importlib.import_module("fake_framework")
    monkeypatch.delitem(sys.modules, "fake_framework")
    assert (module.late, seen) == (2, [2])
    assert "prismdbg: no adapter in process" in capfd.readouterr().err


class NoFinder:
    """As older tools put there; Python passes over it."""


class OwnLoader:
    """Takes no attribute, as a loader that is written in C."""

    __slots__ = ()

    def create_module(self, spec: ModuleSpec) -> None:
        """Python makes it."""

    def exec_module(self, module: Any) -> None:
        module.there = 1


class OwnFinder:
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, OwnLoader()) if name == "foreign_framework" else None  # type: ignore[arg-type]


def test_an_import_by_the_tools_of_others_succeeds_as_without_us(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ours = AfterImport(["foreign_framework"], lambda name: None, "no adapter")
    monkeypatch.setattr(sys, "meta_path", [ours, NoFinder(), *sys.meta_path, OwnFinder()])
    module = importlib.import_module("foreign_framework")
    del sys.modules["foreign_framework"]
    assert module.there == 1
    assert "prismdbg: no adapter in process" in capfd.readouterr().err


@pytest.mark.parametrize(("rank", "said"), [(0, 1), (1, 0)])
def test_one_rank_says_what_is_registered_also_where_the_launcher_sets_no_rank(
    rank: int, said: int, listener: Listener, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Lightning's own launcher does."""
    monkeypatch.delenv("RANK", raising=False)
    dist.init_process_group("fake", rank=rank, world_size=2, store=FakeStore())
    try:
        registration.register("lightning.Trainer", {"model": object()}, [])
    finally:
        dist.destroy_process_group()
    assert len(listener.registered) == 1
    assert capsys.readouterr().err.count("lightning.Trainer: registered: model") == said


def test_a_recorded_trainer_needs_no_temporary_folder(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a node whose disk is full: only a replay tells the Trainer where it was."""

    def full(**_: object) -> Any:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", full)
    module = fake_trainer_module()
    transformers_trainer.install(module)
    assert module.Trainer()._inner_training_loop() == [7, 8]
    assert len(listener.registered) == 1 and listener.given_up == []


def test_in_a_replay_the_trainer_goes_on_from_a_folder_of_its_own_state(listener: Listener) -> None:
    seen: list[tuple[Path, str]] = []
    module = fake_trainer_module()

    def run(self: Any, resume_from_checkpoint: str) -> None:
        folder = Path(resume_from_checkpoint)
        seen.append((folder, (folder / module.TRAINER_STATE_NAME).read_text()))

    module.Trainer._inner_training_loop = run
    transformers_trainer.install(module)
    restore_point.answer_with(listener.reached, recorded=lambda name: {"state": "recorded"})
    module.Trainer()._inner_training_loop()
    ((folder, state),) = seen
    assert state == "recorded" and not folder.exists()


def test_a_second_fit_of_one_lightning_trainer_goes_on_counting(listener: Listener) -> None:
    """It makes its optimizers anew; the progress of its loops goes on."""

    class EpochLoop:
        def __init__(self, trainer: Any) -> None:
            self.trainer, self.global_step = trainer, 0

        def _should_accumulate(self) -> bool:
            return False

        def advance(self, data_fetcher: Any) -> None:
            self.global_step += 1

    lightning_loop.install(SimpleNamespace(_TrainingEpochLoop=EpochLoop))
    model = torch.nn.Linear(2, 2)
    trainer: Any = type("Trainer", (), {})()  # of which there are weak references
    trainer.strategy, trainer.model, trainer.precision_plugin, trainer.fit_loop = object(), model, None, None
    trainer.lr_scheduler_configs = trainer.callbacks = []
    loop, given_up = EpochLoop(trainer), []
    for _ in range(2):
        trainer.optimizers = [torch.optim.SGD(model.parameters(), lr=0.1)]
        for _ in range(2):
            loop.advance(iter([]))
            given_up.append(len(listener.given_up))
    assert given_up == [0, 0, 1, 1] and registration.COUNTER.step == 3
    assert listener.given_up == ["lightning.Trainer: a second training begins, whose state is not registered"]


class Accelerator:
    """Accelerate's, which lacks what a later version of it may not have."""

    def __init__(self, *loaders: object) -> None:
        self.parameter = torch.nn.Parameter(torch.ones(1))
        self._models, self._optimizers = [SimpleNamespace(training=True)], [torch.optim.SGD([self.parameter], lr=0.1)]
        self._dataloaders = list(loaders)


class WholeAccelerator(Accelerator):
    scaler = None
    step = 0

    def __init__(self, *loaders: object) -> None:
        super().__init__(*loaders)
        self._schedulers: list[Any] = []
        self._custom_objects: list[Any] = []


class DataLoaderShard:
    iteration = 0

    def __iter__(self) -> Iterator[int]:
        yield from (7, 8)


@pytest.fixture
def accelerate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The fake of accelerate.data_loader, with the adapter installed."""
    handles = []

    def register(hook: Any) -> None:
        handles.append(register_optimizer_step_post_hook(hook))

    monkeypatch.setattr(accelerate_loop, "register_optimizer_step_post_hook", register)
    monkeypatch.setitem(sys.modules, "accelerate.accelerator", SimpleNamespace(Accelerator=Accelerator))  # type: ignore[arg-type]
    kind = type("DataLoaderShard", (DataLoaderShard,), {"__iter__": DataLoaderShard.__iter__})
    module = SimpleNamespace(
        DataLoaderShard=kind,
        DataLoaderDispatcher=SimpleNamespace(__iter__=None),
        synchronize_rng_states=lambda: None,
        skip_first_batches=lambda loader, num_batches=0: kind(),
    )
    accelerate_loop.install(module)
    yield module
    for handle in handles:
        handle.remove()


def test_a_loop_whose_optimizer_is_not_torch_s_counts_its_steps_as_without(listener: Listener, accelerate: Any) -> None:
    """As DeepSpeed's, which torch's hook does not report."""
    loader = accelerate.DataLoaderShard()
    accelerator, optimizer = WholeAccelerator(loader), object()
    accelerator._optimizers = [SimpleNamespace(optimizer=optimizer)]  # type: ignore[list-item]
    for _ in loader:
        registration.COUNTER.count_call(optimizer, lambda: None, lambda _: False)
    assert registration.COUNTER.step == 2
    assert listener.registered == [] and "cannot read the state of object" in listener.given_up[0]


@pytest.mark.parametrize("is_of_another", [False, True])
def test_a_second_loader_goes_on_counting(listener: Listener, accelerate: Any, is_of_another: bool) -> None:
    """As the first does again after it. Where no optimizer steps, it is one of an evaluation."""
    first, second = accelerate.DataLoaderShard(), accelerate.DataLoaderShard()
    accelerator = WholeAccelerator(first) if is_of_another else WholeAccelerator(first, second)
    another = WholeAccelerator(second) if is_of_another else accelerator
    accelerator.parameter.grad = another.parameter.grad = torch.ones(1)
    counted = []
    for loader, used in ((first, accelerator), (second, None), (second, another), (first, accelerator)):
        for _ in loader:
            if used is not None:
                used._optimizers[0].step()
        counted.append((registration.COUNTER.step, len(listener.given_up)))
    assert counted == [(2, 0), (2, 0), (4, 1), (6, 1)]
    assert len(listener.registered) == 1
    assert listener.given_up == ["accelerate: a second training begins, whose state is not registered"]


def test_a_loop_may_draw_from_a_second_loader(listener: Listener, accelerate: Any) -> None:
    """As one of labelled and unlabelled data."""
    first, second = accelerate.DataLoaderShard(), accelerate.DataLoaderShard()
    accelerator = WholeAccelerator(first, second)
    accelerator.parameter.grad = torch.ones(1)
    steps = []
    for _ in zip(first, second, strict=True):
        accelerator._optimizers[0].step()
        steps.append(registration.COUNTER.step)
    assert (steps, registration.COUNTER.step) == ([0, 1], 2)
    assert len(listener.registered) == 1 and listener.given_up == []


@pytest.mark.parametrize("every", [1, 2])
def test_a_loop_may_draw_a_batch_of_an_evaluation_now_and_then(listener: Listener, accelerate: Any, every: int) -> None:
    first, second = accelerate.DataLoaderShard(), accelerate.DataLoaderShard()
    accelerator = WholeAccelerator(first, second)
    accelerator.parameter.grad = torch.ones(1)
    others: Any = None
    for number, _ in enumerate(first):
        accelerator._optimizers[0].step()
        if (number + 1) % every == 0:
            others = others or iter(second)
            next(others)
    assert registration.COUNTER.step == 2 and listener.given_up == []


def test_a_loop_that_skips_its_first_batches_is_refused(
    listener: Listener, accelerate: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """As after its own checkpoint: no Accelerator knows the loader that it gets."""
    loader = accelerate.DataLoaderShard()
    accelerator = WholeAccelerator(loader)
    assert list(accelerate.skip_first_batches(loader, num_batches=1)) == [7, 8]
    assert listener.given_up == ["accelerate: the loop begins with skip_first_batches, whose place is not registered"]
    assert list(loader) == [7, 8] and listener.registered == [] and accelerator.step == 0
    assert "registered: " not in capfd.readouterr().err


def test_a_loader_gives_its_batches_also_where_nothing_can_be_registered(listener: Listener, accelerate: Any) -> None:
    loader = accelerate.DataLoaderShard()
    accelerator = Accelerator(loader)
    assert list(loader) == [7, 8]
    assert listener.registered == [] and accelerator._dataloaders == [loader]
    assert "no attribute '_schedulers'" in listener.given_up[0]
