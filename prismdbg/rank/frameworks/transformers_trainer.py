"""transformers' Trainer. `get_batch_samples` is the top of its loop: there its state is registered, and a step begins.

In a replay the Trainer is told to go on from a training checkpoint that has its own `trainer_state.json` and nothing
else, so that it finds its place in the data by its own rules; everything else is loaded at the restore point. The first
batch is drawn before that: what a loader does when it begins belongs to the program's beginning.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prismdbg.errors import UsageError
from prismdbg.rank.frameworks import registration
from prismdbg.rank.recording import restore_point

BY = "transformers.Trainer"
PLACE = "trainer"
_COUNTERS = ("_total_loss_scalar", "_globalstep_last_logged", "current_flos")
_DEFAULT_CALLBACKS = {"DefaultFlowCallback", "PrinterCallback", "ProgressCallback", "NotebookProgressCallback"}


def install(module: Any) -> None:
    trainer = module.Trainer
    run, draw = trainer._inner_training_loop, trainer.get_batch_samples
    loop = _Loop()

    @functools.wraps(run)
    def inner_training_loop(self: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as until_it_ends:
            with registration.guarded(BY):
                loop.begin(self)
                if (state := loop.recorded_state(self)) is not None:  # only a replay needs a folder for it
                    folder = until_it_ends.enter_context(tempfile.TemporaryDirectory(prefix="prismdbg-"))
                    (Path(folder) / module.TRAINER_STATE_NAME).write_text(state)
                    kwargs["resume_from_checkpoint"] = folder
            return run(self, *args, **kwargs)

    @functools.wraps(draw)
    def get_batch_samples(self: Any, epoch_iterator: Any, *args: Any, **kwargs: Any) -> Any:
        with registration.guarded(BY):
            epoch_iterator = loop.at_top(self, epoch_iterator)
        return draw(self, epoch_iterator, *args, **kwargs)

    trainer._inner_training_loop, trainer.get_batch_samples = inner_training_loop, get_batch_samples


class _Loop:
    """The process's training loops: the state of the first is registered, and steps count on through all of them."""

    def __init__(self) -> None:
        self._trainer: Any = None
        self._has_begun = False
        self._begun: tuple[Any, Iterator[Any]] | None = None
        self._steps_before = 0

    def begin(self, trainer: Any) -> None:
        if not registration.claim(BY):
            return
        if not self._has_begun:
            self._has_begun, self._trainer = True, trainer
            return
        self._trainer = self._begun = None
        self._steps_before = registration.current_step()
        registration.another_training(BY)

    def recorded_state(self, trainer: Any) -> str | None:
        """In a replay, the Trainer's own state at the snapshot."""
        if trainer is not self._trainer or not restore_point.is_awaited():
            return None
        recorded = restore_point.recorded(PLACE)
        return None if recorded is None else str(recorded["state"])

    def at_top(self, trainer: Any, batches: Any) -> Any:
        """What the step draws its batches from."""
        if not registration.claim(BY):
            return batches
        if trainer is self._trainer and restore_point.is_awaited():
            if restore_point.is_replay():
                self._begun = (batches, itertools.chain([next(batches)], batches))
            registration.register(BY, _objects(trainer), list(_missing(trainer)))
        registration.begin_step(self._steps_before + trainer.state.global_step)
        return self._begun[1] if self._begun is not None and self._begun[0] is batches else batches


class _Place:
    """Where the Trainer is: what its `trainer_state.json` has but the history of what it logged, and the sums that it
    keeps for its next line."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        held = vars(self._trainer)
        state = json.dumps({**asdict(self._trainer.state), "log_history": []})
        counters = {name: held[name] for name in _COUNTERS if name in held}
        return {"state": state, "loss": held.get("_tr_loss"), "counters": counters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if (loss := vars(self._trainer).get("_tr_loss")) is not None and state["loss"] is not None:
            loss.copy_(state["loss"])
        for name in state["counters"].keys() & set(_COUNTERS):
            setattr(self._trainer, name, state["counters"][name])


def _objects(trainer: Any) -> restore_point.Registered:
    loader = trainer.callback_handler.train_dataloader
    if getattr(loader, "rng_types", None) and getattr(loader, "synchronized_generator", None) is not None:
        raise UsageError("the order of the data comes from rank 0's generator (use_seedable_sampler is off)")
    if type(loader).__name__ == "DataLoaderDispatcher":
        raise UsageError("rank 0 draws the batches of all ranks (IterableDataset, dispatch_batches)")
    if trainer.is_deepspeed_enabled:
        raise UsageError("prismdbg cannot read the state of DeepSpeed's engine")
    found = {
        "model": trainer.model_wrapped,
        "optimizer": trainer.optimizer,
        "lr_scheduler": trainer.lr_scheduler,
        "scaler": getattr(trainer.accelerator, "scaler", None),
        PLACE: _Place(trainer),
    }
    return {name: thing for name, thing in found.items() if thing is not None}


def _missing(trainer: Any) -> Iterator[str]:
    if "_tr_loss" not in vars(trainer):
        yield "the sum of losses since the last line of the log"
    callbacks = {type(callback).__name__ for callback in trainer.callback_handler.callbacks} - _DEFAULT_CALLBACKS
    if callbacks:
        yield f"what callbacks remember ({', '.join(sorted(callbacks))})"
    if trainer.args.ignore_data_skip:
        yield "the place in the data (ignore_data_skip)"
    yield "the log history"
    yield "random numbers that the data set draws while it loads a batch"
