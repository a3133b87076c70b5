"""Counts optimizer steps: the first optimizer seen defines the step, also where a gradient scaler skips it."""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from prismdbg.capsule.log.format import StepSource
from prismdbg.rank.program.interruptions import is_for_the_program
from prismdbg.rank.program.isolation import ours
from prismdbg.rank.program.not_compiled import not_compiled
from prismdbg.rank.program.stderr import say
from prismdbg.rank.recording.scaler_notes import Nobody, ScalerListener

Listener = Callable[[int, StepSource], None]
Result = TypeVar("Result")


_MOST = (1 << 32) - 1


def _as_step(number: Any) -> int | None:
    """As numpy's and torch's whole numbers are, too; None for what is none."""
    try:
        step = operator.index(number)
    except Exception:
        return None
    return step if 0 <= step <= _MOST else None


def _shown(number: Any) -> str:
    """The program may hand over anything, also what fails to be shown."""
    try:
        return repr(number)
    except Exception:
        return type(number).__name__


class StepCounter:
    """Calls its listeners with the step that begins. Marked by hand once, it counts no optimizer any more."""

    def __init__(self) -> None:
        self.step = 0
        self.optimizer: weakref.ref[Any] | None = None
        self.by_hand = False
        self._listeners: list[Listener] = []
        self._first_id = 0  # where it cannot be referred to weakly
        self._before = 0  # the step before the present one
        self._in_scaler = False
        self._scales_the_first = False
        self._stepped = False
        self._begun = False
        self._refused = False
        self._has_scaler = False
        self._has_several = False  # optimizers under gradient scalers
        self._numbers: dict[int, tuple[int, weakref.ref[Any]]] = {}  # of others than the first, by id
        self._most_numbers = 0
        self._skipped_last: set[int] = set()  # of these, those that were skipped when they were due last
        self._was_skipped = False  # the optimizer's step in the present step, by a gradient scaler
        self._in_call = False  # of a framework, see `count_call`
        self._has_counted = False
        self._scaler_listener: ScalerListener = Nobody()

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def listen_to_scaler(self, listener: ScalerListener) -> None:
        """Told once when the program makes a gradient scaler, and when that steps a second optimizer; at once if it has
        already."""
        self._scaler_listener = listener
        if self._has_scaler:
            listener.found()
        if self._has_several:
            listener.has_several()

    def install(self) -> None:
        register_optimizer_step_post_hook(self._after_optimizer)
        self._wrap_scaler()

    def mark(self, number: int) -> None:
        """Begins that step. A number that is no step, or that does not go up, is ignored and said once: two moments
        would have one name, and a search over steps would be led astray. The program runs as it would bare."""
        step = _as_step(number)
        if step is None:
            self._refuse(f"prismdbg.step({_shown(number)}) is ignored: a step is a whole number from 0 to {_MOST}")
            return
        self.by_hand = True
        if step > self.step or self._marks_the_first(step):
            self._begin(step, StepSource.SKIPPED_BY_SCALER if self._was_skipped else StepSource.MANUAL)
        elif step < self.step:
            self._refuse(f"prismdbg.step({step}) is ignored: step {self.step} has begun already, and steps only go up")

    def count_call(self, optimizer: Any, call: Callable[[], Result], was_skipped: Callable[[Result], bool]) -> Result:
        """The result of `call`, with which a framework ends a step of `optimizer`: one step, whether it calls the
        optimizer once, for each group of parameters, or not at all. It ends with the first call of the optimizer, else
        with `call`. What `call` raises ends no step."""
        if self._in_call:
            return call()
        is_first = self._is_the_first(optimizer)
        self._in_call, self._has_counted = True, False
        try:
            result = call()
        finally:
            self._in_call = False
        if is_first and not self._has_counted:
            self._was_skipped = was_skipped(result)
            self._count(StepSource.SKIPPED_BY_SCALER if self._was_skipped else StepSource.OPTIMIZER)
        return result

    def count_none_in(self, call: Callable[[], None]) -> None:
        """A framework may call an optimizer to make its state, before there is anything to train."""
        before = self._in_call, self._has_counted
        self._in_call = self._has_counted = True
        try:
            call()
        finally:
            self._in_call, self._has_counted = before

    def found_scaler(self) -> None:
        if not self._has_scaler:
            self._has_scaler = True
            self._scaler_listener.found()

    def go_on_from(self, step: int, *, by_hand: bool) -> None:
        """As if `step` had begun here; nobody is told."""
        self.step, self.by_hand, self._begun = step, by_hand, True

    def _marks_the_first(self, step: int) -> bool:
        return step == self.step == 0 and not self._begun

    def _refuse(self, text: str) -> None:
        if not self._refused:
            self._refused = True
            say(text)

    @not_compiled
    def _after_optimizer(self, optimizer: Any, *_: Any) -> None:
        if self._in_scaler:  # it, or what it wraps
            self._stepped = not _was_told_to_skip(optimizer)
        if not (self._in_scaler and self._scales_the_first) and self._is_the_first(optimizer):
            self._count(StepSource.OPTIMIZER)

    def _is_the_first(self, optimizer: Any) -> bool:
        known = self.optimizer() if self.optimizer is not None else None
        if known is None and not self._first_id:
            try:
                self.optimizer = weakref.ref(optimizer)
            except TypeError:  # a class with slots
                self._first_id = id(optimizer)
            return True
        return known is optimizer or id(optimizer) == self._first_id

    def _found(self, scaler: Any) -> None:
        if getattr(scaler, "_enabled", False):
            self.found_scaler()

    def _wrap_scaler(self) -> None:
        original, original_init = torch.amp.GradScaler.step, torch.amp.GradScaler.__init__

        @functools.wraps(original_init)
        def init(scaler: Any, *args: Any, **kwargs: Any) -> None:
            original_init(scaler, *args, **kwargs)
            self._found(scaler)

        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._found(scaler)  # one that was copied or loaded was not made
            first = self._is_the_first(optimizer)
            gradients_of = 0 if first else self._scales_another()
            self._in_scaler, self._scales_the_first, self._stepped = True, first, False
            try:
                result = original(scaler, optimizer, *args, **kwargs)
            finally:
                self._in_scaler = False
            if first:
                self._was_skipped = not self._stepped
                self._count(StepSource.OPTIMIZER if self._stepped else StepSource.SKIPPED_BY_SCALER)
            else:
                self._tell_of(optimizer, gradients_of)
            return result

        torch.amp.GradScaler.step = step
        torch.amp.GradScaler.__init__ = init

    def _scales_another(self) -> int:
        """The step whose gradients an optimizer gets that is not the first: the one that the first has just ended,
        where nothing came since."""
        if not self._has_several:
            self._has_several = True
            self._scaler_listener.has_several()
        return self.step if self._scaler_listener.has_collectives() else self._before

    def _tell_of(self, optimizer: Any, gradients_of: int) -> None:
        """The program's class may do anything when it is asked; it was not asked in a program that nobody records."""
        try:
            if (known := _that_tells_its_steps(optimizer)) is not None:
                self._tell(known, gradients_of)
        except Exception as error:
            if is_for_the_program(error):
                raise

    def _tell(self, optimizer: Any, gradients_of: int) -> None:
        """Each skip, and the first step that is taken after skips."""
        number, _ = self._numbers.get(id(optimizer), (0, None))
        if not self._stepped:
            if not number:
                self._most_numbers += 1
                number = self._most_numbers
                gone = partial(self._numbers.pop, id(optimizer))
                self._numbers[id(optimizer)] = number, weakref.ref(optimizer, gone)
            self._skipped_last.add(number)
            self._scaler_listener.skipped(gradients_of, number)
        elif number in self._skipped_last:
            self._skipped_last.remove(number)
            self._scaler_listener.taken(number)

    @not_compiled
    def _count(self, source: StepSource) -> None:
        if self._in_call and self._has_counted:
            return
        self._has_counted = True
        if not self.by_hand:
            self._begin(self.step + 1, source)

    def _begin(self, step: int, source: StepSource) -> None:
        self._before, self.step, self._begun, self._was_skipped = self.step, step, True, False
        for listener in self._listeners:
            listener(step, source)


def _was_told_to_skip(optimizer: Any) -> bool:
    """By a gradient scaler, which calls a fused optimizer in any case. On other devices than the CPU the job would have
    to wait for the answer: there it counts as a step."""
    try:
        found = getattr(optimizer, "found_inf", None)
        if not isinstance(found, torch.Tensor) or found.device.type != "cpu":
            return False
        with ours():
            return bool(found)
    except Exception as error:  # a class of the program's own may have anything there
        if is_for_the_program(error):
            raise
        return False


def _that_tells_its_steps(optimizer: Any) -> Any:
    """torch's optimizer, which it is or wraps. Of another object nobody knows whether it was stepped: None."""
    both = (optimizer, getattr(optimizer, "optimizer", None))
    return next((one for one in both if isinstance(one, torch.optim.Optimizer)), None)


COUNTER = StepCounter()


def mark(number: int) -> None:
    """What `prismdbg.step(n)` calls."""
    COUNTER.mark(number)
