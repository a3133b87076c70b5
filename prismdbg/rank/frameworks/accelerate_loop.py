"""Accelerate in a loop of the program's own. Drawing a batch from a prepared loader, while the models train, is the top
of that loop: there what was prepared is registered, and a step begins wherever an optimizer has taken one.

In a replay the loader begins in the epoch of the snapshot, behind the batches that were drawn before. The program's own
variables begin at their beginning: they are the program's, and nobody else can set them.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from prismdbg.errors import UsageError
from prismdbg.rank.frameworks import registration
from prismdbg.rank.recording import ddp_buckets, restore_point

BY = "accelerate"
PLACE = "place"
_END = object()
_MISSING = (
    "the loop's own variables, such as its epoch and its step, unless register_for_checkpointing has them: in a replay "
    "they begin at their beginning",
    "random numbers that the data set draws while it loads a batch",
    "which batch the loop comes to of another loader: in a replay each begins at its beginning",
)


def install(module: Any) -> None:
    loop = _Loop()
    for kind in (module.DataLoaderShard, module.DataLoaderDispatcher):
        kind.__iter__ = _registered(kind.__iter__, loop)
    module.skip_first_batches = loop.skipping(module.skip_first_batches)
    module.synchronize_rng_states = loop.synchronizing(module.synchronize_rng_states)
    register_optimizer_step_post_hook(loop.stepped)


def _registered(iterate: Any, loop: _Loop) -> Any:
    @functools.wraps(iterate)
    def drawn(self: Any) -> Iterator[Any]:
        with registration.guarded(BY):
            loop.begin(self)
        if loop.is_loader(self):
            return loop.through(self, iterate)
        return loop.through_another(iterate(self)) if loop.has_begun else iterate(self)

    return drawn


class _Loop:
    def __init__(self) -> None:
        self._accelerator: Any = None
        self._loader: Any = None
        self._optimizer: Any = None
        self._steps = 0
        self._all_steps = 0  # of any optimizer
        self._tops = 0  # times that the program came to the top of the loop
        self._place: _Place | None = None
        self._whole: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # loaders by those that skip
        self.has_begun = False

    def stepped(self, optimizer: Any, *_: Any) -> None:
        self._all_steps += 1
        if self.has_begun and self._loader is None:  # another training: the first of its optimizers
            self._steps = registration.current_step() + 1
        else:
            self._steps += optimizer is self._optimizer

    def skipping(self, skip: Any) -> Any:
        """A loop that goes on from a training checkpoint of its own draws from a loader that no Accelerator knows."""

        @functools.wraps(skip)
        def skipped(dataloader: Any, *args: Any, **named: Any) -> Any:
            loader = skip(dataloader, *args, **named)
            with registration.guarded(BY):
                if loader is not dataloader:
                    self._whole[loader] = dataloader
            return loader

        return skipped

    def synchronizing(self, synchronize: Any) -> Any:
        """An epoch begins with rank 0's generator on every rank; in a replay with the recorded one."""

        @functools.wraps(synchronize)
        def synchronized(rng_types: Any, generator: Any = None) -> None:
            place = self._place
            mine = place if place is not None and place.is_of(generator) else None
            recorded = restore_point.recorded(PLACE) if mine is not None and restore_point.is_awaited() else None
            if recorded is not None:
                generator.set_state(recorded["generator"])
            else:
                synchronize(rng_types, generator)
            if mine is not None:
                mine.generator = generator.get_state()

        return synchronized

    def is_loader(self, loader: Any) -> bool:
        return loader is self._loader and registration.claim(BY)

    def begin(self, loader: Any) -> None:
        """The first loader that is iterated over while the models train is the one of the loop."""
        if self._loader is not None or not registration.is_claimable(BY):
            return
        accelerator = _accelerator_of(self._whole.get(loader, loader))
        if accelerator is None or not accelerator._optimizers or not all(m.training for m in accelerator._models):
            return
        if not registration.claim(BY):
            return
        if type(loader).__name__ == "DataLoaderDispatcher":
            raise UsageError("rank 0 draws the batches of all ranks (IterableDataset, dispatch_batches)")
        if loader in self._whole:
            raise UsageError("the loop begins with skip_first_batches, whose place is not registered")
        optimizer = getattr(first := accelerator._optimizers[0], "optimizer", first)
        if getattr(accelerator, "deepspeed_engine_wrapped", None) or not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(f"prismdbg cannot read the state of {type(optimizer).__name__}")
        self._accelerator, self._loader, self._optimizer, self.has_begun = accelerator, loader, optimizer, True
        self._place = _Place(accelerator, loader)
        self._steps = registration.current_step()
        if (recorded := restore_point.recorded(PLACE)) is not None:
            loader.iteration, self._steps = int(recorded["epoch"]), restore_point.recorded_step()

    def through(self, loader: Any, iterate: Any) -> Iterator[Any]:
        """The batches of one epoch. Before each of them is the top of the loop."""
        batches = iterate(loader)
        place = self._place
        assert place is not None
        ahead: list[Any] = []  # what fails below is no reason to draw none
        try:
            with registration.guarded(BY):
                place.begin_epoch()
                ahead = self._registered(batches)
            while True:
                self._tops += 1
                with registration.guarded(BY):
                    registration.begin_step(self._steps)
                batch, ahead = (ahead[0] if ahead else next(batches, _END)), []
                if batch is _END:
                    return
                place.drawn += 1
                yield batch
        finally:
            batches.close()

    def through_another(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Where an optimizer steps between two batches, and the program does not come to the top of the loop, it is
        another training's. It is not registered, and its steps are counted."""
        for batch in batches:
            tops, steps = self._tops, self._all_steps
            yield batch
            with registration.guarded(BY):
                if self._tops == tops and self._all_steps != steps:
                    self._goes_on()

    def _goes_on(self) -> None:
        if self._loader is not None:
            self._accelerator = self._loader = self._optimizer = self._place = None
            self._steps = registration.current_step() + 1
            registration.another_training(BY)
        registration.begin_step(self._steps)

    def _registered(self, batches: Iterator[Any]) -> list[Any]:
        """In a replay the first batch, which is drawn before the restore point: with it the loader begins."""
        ahead: list[Any] = []
        if restore_point.is_awaited():
            if (recorded := restore_point.recorded(PLACE)) is not None:
                for _ in range(int(recorded["drawn"])):
                    next(batches)
                ahead.append(next(batches, _END))
            registration.register(BY, self._objects(), _MISSING)
        return ahead

    def _objects(self) -> restore_point.Registered:
        accelerator = self._accelerator
        found = {
            **registration.numbered("model", accelerator._models),
            **registration.numbered("optimizer", accelerator._optimizers),
            **registration.numbered("lr_scheduler", accelerator._schedulers),
            **registration.numbered("custom", accelerator._custom_objects),
            "scaler": accelerator.scaler,
            PLACE: self._place,
        }
        return {name: thing for name, thing in found.items() if thing is not None}


class _Place:
    """Which loader, in which epoch of it, and how many batches it gave there."""

    def __init__(self, accelerator: Any, loader: Any) -> None:
        self._accelerator = accelerator
        self._loader = loader
        self._epoch = 0
        self.drawn = 0
        self.generator: Any = None  # as it was when the epoch began

    def is_of(self, generator: Any) -> bool:
        return generator is not None and generator is getattr(self._loader, "synchronized_generator", None)

    def begin_epoch(self) -> None:
        self._epoch, self.drawn = int(self._loader.iteration), 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "loader": _place_in(self._loader, self._accelerator._dataloaders),
            "epoch": self._epoch,
            "drawn": self.drawn,
            "generator": self.generator,
            "accumulated": int(self._accelerator.step),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if (mine := _place_in(self._loader, self._accelerator._dataloaders)) != state["loader"]:
            raise UsageError(f"the loop begins with loader {mine}; it was recorded with loader {state['loader']}")
        self._epoch, self.drawn, self._accelerator.step = state["epoch"], state["drawn"], state["accumulated"]


def _place_in(loader: Any, loaders: list[Any]) -> int:
    return next((number for number, each in enumerate(loaders) if each is loader), -1)


def _accelerator_of(loader: Any) -> Any:
    """The Accelerator that prepared it: none is told to a loader, so all objects are looked through, once."""
    kind = getattr(sys.modules.get("accelerate.accelerator"), "Accelerator", None)
    if kind is None:
        return None
    return next((each for each in ddp_buckets.instances_of(kind) if _place_in(loader, each._dataloaders) >= 0), None)
