"""Lightning's Trainer. `advance` of its epoch loop is the top of the loop: there its state is registered, and a step
begins wherever the batch before took one.

In a replay the batches that were drawn before the snapshot are drawn once more, which belongs to the program's
beginning; then the loops get their recorded progress while they run.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from prismdbg.errors import UsageError
from prismdbg.rank.frameworks import registration
from prismdbg.rank.recording import restore_point

BY = "lightning.Trainer"
PLACE = "loops"
_STATEFUL = "combined_loader"


def install(module: Any) -> None:
    loop = module._TrainingEpochLoop
    advance = loop.advance
    state = _Loop()

    @functools.wraps(advance)
    def advance_registered(self: Any, data_fetcher: Any) -> Any:
        with registration.guarded(BY):
            state.at_top(self, data_fetcher)
        return advance(self, data_fetcher)

    loop.advance = advance_registered


class _Loop:
    """The process's calls of `fit`: the state of the first is registered, and steps count on through all of them."""

    def __init__(self) -> None:
        self._trainer: Callable[[], Any] | None = None  # a weak reference
        self._trained: list[Callable[[], Any]] = []  # also weak
        self._steps_before = 0

    def at_top(self, loop: Any, batches: Any) -> None:
        trainer = loop.trainer
        if not registration.claim(BY):
            return
        now = [trainer.model, *trainer.optimizers]
        before, self._trained = [ref() for ref in self._trained], [weakref.ref(thing) for thing in now]
        if self._trainer is None or trainer is not self._trainer():
            is_first, self._trainer = self._trainer is None, weakref.ref(trainer)
            self._steps_before = registration.current_step()
            if not is_first:
                registration.another_training(BY)
            elif restore_point.is_awaited():
                self._register(trainer, batches)
        elif [*map(id, before)] != [*map(id, now)]:  # a second `fit` makes them anew; its global_step counts on
            registration.another_training(BY)
        if not loop._should_accumulate():
            registration.begin_step(self._steps_before + loop.global_step)

    def _register(self, trainer: Any, batches: Any) -> None:
        if (recorded := restore_point.recorded(PLACE)) is not None:
            self._draw(trainer, batches, recorded)
        registration.register(BY, _objects(trainer), list(_missing(trainer)))
        self._steps_before = 0

    @staticmethod
    def _draw(trainer: Any, batches: Any, recorded: dict[str, Any]) -> None:
        """What the epoch of the snapshot had drawn."""
        epoch = int(recorded["epoch_progress"]["current"]["processed"])
        if epoch > 0:
            for loader in trainer.fit_loop._combined_loader.flattened:
                _set_epoch(loader, epoch)
            iter(batches)
        for _ in range(int(recorded["epoch_loop.batch_progress"]["current"]["ready"])):
            next(batches)


class _Place:
    """The progress of all loops, as Lightning writes it into its checkpoints."""

    def __init__(self, trainer: Any) -> None:
        self._loop = trainer.fit_loop

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self._loop.state_dict()
        return {**state, "state_dict": {name: v for name, v in state["state_dict"].items() if name != _STATEFUL}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Into loops that run: they do not begin again."""
        self._loop.load_state_dict(state)
        self._loop.restarting = False
        for loop in _all_loops(self._loop):
            loop._loaded_from_state_dict = loop._resuming_from_checkpoint = False


def _all_loops(loop: Any) -> Iterator[Any]:
    yield loop
    for held in vars(loop).values():
        if hasattr(held, "_loaded_from_state_dict"):
            yield from _all_loops(held)


def _set_epoch(loader: Any, epoch: int) -> None:
    """As Lightning does, of a sampler and of a batch sampler's."""
    samplers = [getattr(loader, "sampler", None), getattr(getattr(loader, "batch_sampler", None), "sampler", None)]
    for sampler in samplers:
        if callable(set_epoch := getattr(sampler, "set_epoch", None)):
            set_epoch(epoch)


def _objects(trainer: Any) -> restore_point.Registered:
    strategy = type(trainer.strategy).__name__
    if "DeepSpeed" in strategy or "ModelParallel" in strategy:
        raise UsageError(f"{strategy} keeps state that no adapter can read")
    optimizers, schedulers = trainer.optimizers, [each.scheduler for each in trainer.lr_scheduler_configs]
    found = {
        "model": trainer.model,
        **registration.numbered("optimizer", optimizers),
        **registration.numbered("lr_scheduler", schedulers),
        "scaler": getattr(trainer.precision_plugin, "scaler", None),
        PLACE: _Place(trainer),
    }
    return {name: thing for name, thing in found.items() if thing is not None}


def _missing(trainer: Any) -> Iterator[str]:
    callbacks = sorted({type(callback).__name__ for callback in trainer.callbacks if callback.state_dict()})
    if callbacks:
        yield f"what callbacks remember ({', '.join(callbacks)})"
    yield "what self.log sums up over an epoch"
    yield "attributes of the LightningModule that are no parameters or buffers"
