"""Between two collectives: operators, allocations and frees as they happen, counted, stopped at, searched for a writer.

The tracer calls `happened` in the thread that made the event, and only while somebody wants to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any

from prismdbg.errors import PrismError
from prismdbg.expr import tree
from prismdbg.expr.evaluator import evaluate
from prismdbg.expr.parser import Expression, parse
from prismdbg.model.breakpoints import BreakpointKind, StopReason
from prismdbg.model.moment import Moment
from prismdbg.rank.debug.breakpoints import Breakpoints, Watched, at_line, line_of
from prismdbg.rank.debug.digest import digest_of
from prismdbg.rank.debug.gate import Aim, Gate, Stop
from prismdbg.rank.debug.gate import BreakpointMode as Mode
from prismdbg.rank.debug.scope import environment_of
from prismdbg.rank.debug.stopping import FINISH
from prismdbg.rank.program.frames import in_backward, is_module, modules_around, program_frame, program_line, stack_of
from prismdbg.rank.program.isolation import quiet
from prismdbg.rank.tracing import tracer
from prismdbg.rank.tracing.tracer import Event, EventKind, Filter

MAX_FRAMES = 12
MOST_BYTES = 1 << 62  # that a filter can name; no block is as large
OURS = "c10d::"  # a collective is a stop of its own


class Events:
    """`number`: events since the last collective, while all are told; `before`: of the stretch that ended there."""

    def __init__(self, gate: Gate, stops: Breakpoints) -> None:
        self._gate = gate
        self._stops = stops
        self._writer: _Writer | None = None
        self._left = 0
        self._until: Moment | None = None
        self._outside = False  # of a backward pass: stop at the first operator
        self._module = ""  # stop at, or note, the operators outside of it
        self._block = 0
        self._every = False
        self.number = 0
        self.before = 0

    def aimed(self, aim: Aim) -> None:
        """The rank is about to go on: what does its client want to hear of?"""
        wanted = aim.events or {}
        self._every = bool(wanted)
        self._left = int(wanted.get("count", 0))
        self._until = Moment.parse(str(wanted["until"])) if wanted.get("until") else None
        self._outside = bool(wanted.get("outside_backward"))
        self._module = aim.finish.module if aim.finish is not None and wanted.get("finish") else ""
        self._block = int(wanted.get("block", 0))
        self._writer = _Writer(parse(str(wanted["writer_of"]))) if wanted.get("writer_of") else None
        if self._writer is not None and self._gate.current is not None:
            self._writer.look(None, self._gate.current.frame)
        filters = [Filter(every=True)] if self._every else []
        if self._block:
            filters.append(Filter(size_at_least_bytes=1))  # also of other threads
        if aim.stops in (Mode.APPLY, Mode.NOTE):
            filters += [_filter(one) for one in self._allocations]
        if filters:
            tracer.on_event(self.happened, filters)
        elif tracer.is_armed():
            tracer.on_event(None)

    @property
    def _allocations(self) -> list[Watched]:
        return [one for one in self._stops.watched if one.kind is BreakpointKind.ALLOCATION]

    def collective(self, label: str, moment: Moment) -> None:
        """A collective begins: events are counted anew."""
        self.before, self.number = self.number, 0
        if self._writer is not None:
            frame = program_frame()
            self._writer.look(self._writer.last, frame)
            self._writer.last = _told(label, moment, frame)

    def answered(self) -> None:
        """The answer of the collective may be what is looked for."""
        self.is_over(program_frame())

    def is_over(self, frame: FrameType | None) -> None:
        """What ran last has ended, also by an exception."""
        if self._writer is not None:
            self._writer.look(self._writer.last, frame)

    def told(self) -> dict[str, Any]:
        """What a stop is told with."""
        found: dict[str, Any] = {"events": self.number, "events_before": self.before}
        if self._writer is not None:
            found["writer"] = self._writer.found
        return found

    def happened(self, event: Event) -> None:
        if event.op.startswith(OURS):
            return
        stops: tuple[int, ...] = ()
        frame = program_frame()
        reason = self._allocates(event)
        if self._every and 0 in event.matched:
            self.number += 1
            reason = self._stepped(event, frame) or reason
            if self._writer is not None and event.kind is EventKind.OP:
                self._writer.look(self._writer.last, frame)
                self._writer.last = _told(event.op, event.moment, frame)
        looks = self._gate.aim.stops in (Mode.APPLY, Mode.NOTE)
        if looks and event.kind is EventKind.ALLOCATION and self._allocations:
            stops = self._hit(event, frame)
        if reason or stops:
            reason = reason or StopReason.STOP
            names = {**names_of(event), **line_of(frame)}
            self._gate.stop(Stop(reason, event.moment, _json(event), frame, names, stops=stops))

    def _allocates(self, event: Event) -> str:
        if self._block and event.kind is EventKind.ALLOCATION and event.block == self._block:
            self._block = 0
            return StopReason.UNTIL
        return ""

    def _stepped(self, event: Event, frame: FrameType | None) -> str:
        if self._left:
            self._left -= 1
            return "" if self._left else StopReason.STEP
        if self._until is not None and event.kind is EventKind.OP and event.moment >= self._until:
            self._until = None
            return StopReason.UNTIL
        if self._outside and event.kind is EventKind.OP and not in_backward(frame):
            self._outside = False
            return StopReason.UNTIL
        if self._module and event.kind is EventKind.OP and not _is_inside(self._module, event, frame):
            return self._left_module(event)
        return ""

    def _left_module(self, event: Event) -> str:
        """The reason to stop; nothing where it is only noted."""
        if self._gate.aim.stops is Mode.NOTE:
            self._gate.aim.noted.append({"moment": str(event.moment), "stop": FINISH, "op": event.op})
            return ""
        self._module = ""
        return "finish"

    def _hit(self, event: Event, frame: FrameType | None) -> tuple[int, ...]:
        """Numbers of the stops that hold; where hits are only noted, none."""
        names = Asked(event, frame)
        hit = [
            one
            for one in self._allocations
            if fits(one.spec, event, frame) and self._stops.holds(one, names.lookup, frame)
        ]
        if self._gate.aim.stops is Mode.NOTE:
            for one in hit:
                self._gate.aim.noted.append(
                    {"moment": str(event.moment), "stop": one.number, "op": event.op, "block": event.block}
                )
            return ()
        admitted = self._stops.admitted(hit)
        for one in admitted:
            if one.spec.get("log_only"):
                values = self._stops.told(one, event.moment, names.lookup, frame)
                self._gate.hit(one.number, event.moment, _json(event), values)
        return tuple(one.number for one in admitted if not one.spec.get("log_only"))


class _Writer:
    """The last operator, or collective, after which an expression had another value."""

    def __init__(self, expression: Expression) -> None:
        self._expression = expression
        self._digest = ""
        self.last: dict[str, Any] | None = None
        self.found: dict[str, Any] | None = None

    def look(self, last: dict[str, Any] | None, frame: FrameType | None) -> None:
        """`last`: what may have changed it since the last look."""
        try:
            with quiet():
                now = digest_of(evaluate(self._expression, environment_of(_no_name, frame)))
        except PrismError:
            return
        if self._digest and now != self._digest and last is not None:
            self.found = last
        self._digest = now


def fits(spec: dict[str, Any], event: Event, frame: FrameType | None) -> bool:
    """Everything of an allocation's stop but the condition, the cheapest first."""
    op, module = spec.get("op"), str(spec.get("module", ""))
    if op is not None and op not in (
        event.op, event.op.removeprefix("aten::"), event.outer_op, event.outer_op.removeprefix("aten::"),
    ):  # fmt: skip
        return False
    if module and not _is_inside(module, event, frame):
        return False
    return not spec.get("file") or at_line(frame, str(spec["file"]), int(spec["line"]))


def _is_inside(module: str, event: Event, frame: FrameType | None) -> bool:
    return any(is_module(module, name) for name in _around(event, frame))


def _around(event: Event, frame: FrameType | None) -> Iterator[str]:
    """The module that runs and those that it is a part of; then those whose call is under way, which may be others."""
    parts = event.module.split(".")
    yield from (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    yield from modules_around(frame)


class Asked:
    """What a condition may ask about an event; where in the program it was made is looked for only then."""

    def __init__(self, event: Event, frame: FrameType | None) -> None:
        self._names = names_of(event)
        self._frame = frame

    def lookup(self, name: str) -> Any:
        return line_of(self._frame)[name] if name in ("file", "line") else self._names[name]


def names_of(event: Event) -> dict[str, Any]:
    """The names of an event that are known with it."""
    return {
        "op": event.op,
        "outer_op": event.outer_op,
        "module": event.module,
        "size": event.size_bytes,
        "total": event.total_bytes,
        "allocated": event.total_bytes,
        "bytes": event.size_bytes,
        "reason": str(event.kind),
        "step": event.moment.step,
        "collective": event.moment.collective,
        "moment": str(event.moment),
    }


def _json(event: Event) -> dict[str, Any]:
    return {
        "kind": str(event.kind),
        "profiling_name": event.op,
        "outer_op": event.outer_op,
        "process_group": "",
        "module": event.module,
        "address": event.address,
        "size_bytes": event.size_bytes,
        "total_bytes": event.total_bytes,
        "block": event.block,
        "is_backend": event.is_backend,
        "device": event.device,
    }


def _told(op: str, moment: Moment, frame: FrameType | None) -> dict[str, Any]:
    own = program_line(frame)
    return {"op": op, "moment": str(moment), "frames": stack_of(own)[:MAX_FRAMES]}


def _filter(one: Watched) -> Filter:
    """As much of a stop as can be decided where the allocation is made; the rest of its condition comes after."""
    return Filter(size_at_least_bytes=max(1, least_size(one.condition)))


def least_size(condition: Expression | None) -> int:
    """What `size > N` (or bytes), alone or with `and`, asks for at least; 0 where it says nothing of the kind."""
    if condition is None:
        return 0
    root = condition.root
    parts = root.operands if isinstance(root, tree.Logic) and root.word == "and" else (root,)
    return max((_bound_of(part) for part in parts), default=0)


def _bound_of(part: tree.Node) -> int:
    match part:
        case tree.Comparison(
            first=tree.Name(name="size" | "bytes"), rest=((">" | ">=", tree.Literal(value=int() | float() as least)),)
        ):
            return int(min(least, MOST_BYTES))
        case _:
            return 0


def _no_name(name: str) -> Any:
    raise KeyError(name)
