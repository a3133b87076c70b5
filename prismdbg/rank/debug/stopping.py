"""Whether a replayed rank stops at a collective, and for whom: the gate's aim, the client's stops, a module's end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from prismdbg.model.breakpoints import StopReason
from prismdbg.model.moment import Moment
from prismdbg.rank.debug.breakpoints import Breakpoints, CallView, Watched
from prismdbg.rank.debug.gate import BreakpointMode as Mode
from prismdbg.rank.debug.gate import Finish, Gate
from prismdbg.rank.program.frames import in_backward, is_module
from prismdbg.rank.program.isolation import quiet

FINISH = -1  # the number that a module's end is noted under


@dataclass(slots=True)
class Halt:
    """One collective on its way: what is known of it before the answer. `before`: what is sent, where it is kept."""

    view: CallView
    reason: str
    hit: list[Watched] = field(default_factory=list)
    waiting: list[Watched] = field(default_factory=list)
    before: list[torch.Tensor] = field(default_factory=list)
    stops: tuple[int, ...] = ()


class Halts:
    def __init__(self, gate: Gate, publish: Callable[..., None]) -> None:
        self._gate = gate
        self._publish = publish
        self._moment = Moment(0)
        self.stops = Breakpoints(self._failed)

    def before(self, view: CallView) -> Halt:
        """Called before the answer, which may overwrite what is sent."""
        self._moment = view.moment
        mode, finish = self._gate.aim.stops, self._gate.aim.finish
        halt = Halt(view, self._gate.reason_at(view.moment))
        if finish is not None:
            self._finished(finish, halt, mode)
        if mode in (Mode.APPLY, Mode.NOTE) and self.stops.watched:
            halt.hit, halt.waiting = self.stops.early(halt.view)
        if halt.reason or halt.waiting or (mode is Mode.APPLY and halt.hit):
            with quiet():
                halt.view.inputs = halt.before = [t.detach().clone() for t in view.call.inputs]
        return halt

    def after(self, halt: Halt, event: dict[str, Any], synthesized: bool) -> str:
        """The reason to stop now that the answer is there, or nothing."""
        view = halt.view
        if not (halt.hit or halt.waiting):
            return halt.reason
        view.synthesized = synthesized
        hit = [*halt.hit, *self.stops.late(halt.waiting, view)]
        if self._gate.aim.stops is Mode.NOTE:
            for one in hit:
                self._note(one.number, event, view)
            return halt.reason
        admitted = self.stops.admitted(hit)
        for one in admitted:
            if one.spec.get("log_only"):
                self._gate.hit(
                    one.number, view.moment, event, self.stops.told(one, view.moment, view.cheap, view.frame)
                )
        halt.stops = tuple(one.number for one in admitted if not one.spec.get("log_only"))
        if halt.stops and halt.reason in ("", StopReason.SPACING):
            return StopReason.STOP
        return halt.reason

    def _finished(self, finish: Finish, halt: Halt, mode: Mode) -> None:
        """The first collective that is no longer inside; while hits are noted, each that is outside."""
        view = halt.view
        inside = bool(finish.module) and any(is_module(finish.module, name) for name in view.modules)
        if mode is Mode.NOTE:
            before = view.moment.step < finish.step if not finish.module else not inside
            if before:
                self._note(FINISH, {}, view)
        elif view.moment.step > finish.step or (finish.module and not inside):
            halt.reason = halt.reason if halt.reason not in ("", StopReason.SPACING) else StopReason.FINISH

    def _note(self, number: int, event: dict[str, Any], view: CallView) -> None:
        own = view.cheap("file")
        self._gate.aim.noted.append(
            {
                "moment": str(view.moment),
                "stop": number,
                "op": event.get("profiling_name", ""),
                "file": own,
                "line": view.cheap("line"),
                "backward": in_backward(view.frame),
            }
        )

    def _failed(self, number: int, error: str) -> None:
        self._publish("stop_failed", moment=str(self._moment), stop=number, error=error)
