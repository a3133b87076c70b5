"""The client's stops, evaluated in the rank: cheap fields first, tensors only where an expression asks for them.

A condition that fails is told once with the stop's number, and the rank goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from prismdbg.errors import PrismError, UsageError
from prismdbg.expr.evaluator import Environment, evaluate
from prismdbg.expr.parser import Expression, parse
from prismdbg.expr.template import Template, parse_template
from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.model.collective import Collective, Identity, State
from prismdbg.model.moment import Moment
from prismdbg.rank.c10d import fingerprint
from prismdbg.rank.c10d.call import Call, metas
from prismdbg.rank.debug.digest import digest_of
from prismdbg.rank.debug.rendering import is_scalar, render, short, type_name
from prismdbg.rank.debug.scope import environment_of
from prismdbg.rank.program.frames import (
    infers_shapes,
    is_module,
    modules_around,
    own_frames,
    program_frame,
    program_line,
)
from prismdbg.rank.program.isolation import quiet
from prismdbg.rank.program.tensor_parts import is_tensor
from prismdbg.rank.tracing import tracer

# known before the answer, without a tensor
CHEAP = frozenset(
    ["op", "group", "axis", "seq", "bytes", "dtype", "step", "collective", "moment", "peer", "module", "file", "line"]
)
SHOWN = ("input", "out", "synthesized", *sorted(CHEAP))
HELD = ("allocated", "total")  # of a rank that is traced
ABSENT = "absent"
MEMORY = frozenset(["allocated", "size", "total", "reason"])  # of allocations; the first and third of any moment


@dataclass(slots=True)
class Watched:
    """One stop, compiled. `before`: the digest of its expression, as it was last seen."""

    number: int
    kind: BreakpointKind
    spec: dict[str, Any]
    condition: Expression | None
    expression: Expression | None
    ignore: int
    message: Template
    before: str = ""
    failed: bool = False

    @classmethod
    def compile(cls, spec: dict[str, Any]) -> Watched:
        condition, expression = spec.get("condition"), spec.get("expression")
        return cls(
            number=int(spec.get("number", 0)),
            kind=BreakpointKind(spec["kind"]),
            spec=spec,
            condition=parse(str(condition)) if condition else None,
            expression=parse(str(expression)) if expression else None,
            ignore=int(spec.get("ignore", 0)),
            message=parse_template(str(spec.get("message", ""))),
        )

    @property
    def is_early(self) -> bool:
        """Whether it can be decided before the answer is there: its names are of the call and of what is sent."""
        return self.kind is not BreakpointKind.CHANGE and (
            self.condition is None or self.condition.names <= CHEAP | MEMORY | {"input"}
        )


class CallView:
    """What stops may ask about one collective; worked out when it is asked for."""

    def __init__(
        self, call: Call, moment: Moment, identity: Identity, record: Collective | None, titles: tuple[str, ...]
    ) -> None:
        self.call, self.moment, self.identity, self.record = call, moment, identity, record
        self.titles = titles  # what the group may be called: its name first, then its axis or description
        self.synthesized = False
        self.inputs: list[Any] = call.inputs
        self._frame: FrameType | None = None
        self._modules: tuple[str, ...] | None = None

    @property
    def frame(self) -> FrameType | None:
        if self._frame is None:
            self._frame = program_frame()
        return self._frame

    @property
    def modules(self) -> tuple[str, ...]:
        if self._modules is None:
            self._modules = modules_around(self.frame)
        return self._modules

    def names(self) -> dict[str, Any]:
        """All of them, for who stands here: an expression sees the same names wherever it is typed."""
        found = {name: self.cheap(name) for name in SHOWN}
        return found | ({name: self.cheap(name) for name in HELD} if tracer.is_armed() else {})

    def cheap(self, name: str) -> Any:
        """`KeyError` for what is not of the call."""
        match name:
            case "op":
                return self.call.spec.label
            case "group" | "axis":
                return self.titles[-1]
            case "seq":
                return self.identity.seq
            case "bytes":
                return sum(
                    t.numel() * t.element_size() for t in self.call.inputs or self.call.outputs if not t.is_sparse
                )
            case "dtype":
                found = metas((self.call.inputs or self.call.outputs)[:1])
                return found[0].dtype if found else ""
            case "step" | "collective":
                return getattr(self.moment, name)
            case "moment":
                return str(self.moment)
            case "allocated" | "total" if tracer.is_armed():
                return tracer.allocated()
            case "peer":
                return self.call.root if self.call.spec.is_p2p else None
            case "module":
                return self.modules[-1] if self.modules else ""
            case "file" | "line":
                return line_of(self.frame)[name]
            case "input":
                return self.inputs
            case "out":
                return self.call.outputs
            case "synthesized":
                return self.synthesized
        raise KeyError(name)


def _is_unknown(record: Collective | None) -> bool:
    """Whether nothing recorded says what was sent: on a device the end says it, if there was room to look."""
    return record is None or (
        record.is_on_device and (record.state is not State.COMPLETED or record.fingerprint is None)
    )


@dataclass(slots=True)
class Breakpoints:
    """`fail(number, error)` is told of a condition that cannot be evaluated. assumes: whether a value at a moment, made
    of these names, rests on what peers are assumed to send."""

    fail: Callable[[int, str], None]
    assumes: Callable[[Moment, Collection[str]], bool] = lambda _moment, _names: False
    watched: list[Watched] = field(default_factory=list)

    def replace(self, specs: Iterable[dict[str, Any]]) -> None:
        """The whole list anew; what a change is measured from stays."""
        before = {old.spec.get("expression"): old.before for old in self.watched if old.kind is BreakpointKind.CHANGE}
        self.watched = [Watched.compile(spec) for spec in specs]
        for one in self.watched:
            one.before = before.get(one.spec.get("expression"), "")

    @property
    def left(self) -> dict[str, int]:
        """What each still lets pass."""
        return {str(one.number): one.ignore for one in self.watched if one.spec.get("ignore")}

    def early(self, view: CallView) -> tuple[list[Watched], list[Watched]]:
        """Those that are hit already, and those that can only be decided when the answer is there."""
        hit, waiting = [], []
        for one in self.watched:
            if not self._is_meant(one, view):
                continue
            if one.kind is BreakpointKind.NAN and _is_unknown(view.record):
                sent = fingerprint.nonfinite([t for t in view.call.sent if not t.is_sparse])
                if not (sent and one.is_early and self.holds(one, view.cheap, view.frame)):
                    waiting.append(one)
                    continue
                hit.append(one)
            elif not one.is_early:
                waiting.append(one)
            elif self.holds(one, view.cheap, view.frame):
                hit.append(one)
        return hit, waiting

    def late(self, waiting: list[Watched], view: CallView) -> list[Watched]:
        return [one for one in waiting if self._late(one, view)]

    def _late(self, one: Watched, view: CallView) -> bool:
        if one.kind is BreakpointKind.NAN and _is_unknown(view.record):
            tensors = [t for t in (*view.inputs, *view.call.received) if not t.is_sparse]
            if not fingerprint.nonfinite(tensors):
                return False
        if one.kind is BreakpointKind.CHANGE and not self.changed(one, view.cheap, view.frame):
            return False
        return self.holds(one, view.cheap, view.frame)

    def _is_meant(self, one: Watched, view: CallView) -> bool:
        """A spec that cannot be read is told; the program, in the midst of its call, hears nothing of it."""
        try:
            return self._fits(one, view)
        except Exception as error:
            self._failed(
                one, UsageError(f"this breakpoint cannot be evaluated: {type(error).__name__}: {str(error)[:200]}")
            )
            return False

    def _fits(self, one: Watched, view: CallView) -> bool:
        """Everything but the condition, the cheapest first."""
        spec, call = one.spec, view.call
        if spec.get("op") not in (None, call.spec.label) or spec.get("group") not in (None, *view.titles):
            return False
        if spec.get("seq") not in (None, view.identity.seq) or not self._suits(one, view):
            return False
        if spec.get("file") and not at_line(view.frame, str(spec["file"]), int(spec["line"])):
            return False
        return not spec.get("module") or any(is_module(str(spec["module"]), name) for name in view.modules)

    def _suits(self, one: Watched, view: CallView) -> bool:
        """What its kind asks of a collective. Those of other events are looked for where these happen."""
        record, call = view.record, view.call
        match one.kind:
            case BreakpointKind.COLLECTIVE | BreakpointKind.CHANGE:
                return True
            case BreakpointKind.NAN if record is not None and record.synthesized:
                self._failed(one, UsageError("values depend on synthesized answers, so NaN is not checked"))
                return False
            case BreakpointKind.NAN:
                may_be = record is None or _is_unknown(record) or record.sent_nonfinite or record.received_nonfinite
                return may_be and not infers_shapes(view.frame)
            case BreakpointKind.PEER:
                return bool(call.spec.is_p2p and call.root == one.spec.get("peer"))
            case BreakpointKind.ALLOCATION | BreakpointKind.EXCEPTION | BreakpointKind.DIVERGENCE:
                return False

    def changed(self, one: Watched, lookup: Callable[[str], Any], frame: FrameType | None) -> bool:
        """Whether its expression has another value than when it was last seen. While it has none, nothing changes;
        that it has one for the first time does count. One of which no change can be seen is told; the program, in the
        midst of its call, hears nothing of it."""
        assert one.expression is not None
        with quiet():
            try:
                now = _digest_now(one.expression, environment_of(lookup, frame))
            except Exception as error:
                self._failed(one, _told_as(error))
                return False
        if now == ABSENT:
            one.before = one.before or ABSENT
            return False
        before, one.before = one.before, now
        return bool(before) and before != now

    def measure(self, lookup: Callable[[str], Any], frame: FrameType | None) -> None:
        """From here on changes count: what came before was passed, or seen by whoever stood here."""
        for one in self.watched:
            if one.kind is BreakpointKind.CHANGE:
                self.changed(one, lookup, frame)

    def measure_nothing(self) -> None:
        """As `measure`, before anything of the program is there."""
        for one in self.watched:
            one.before = ABSENT

    def holds(self, one: Watched, lookup: Callable[[str], Any], frame: FrameType | None) -> bool:
        """Whether its condition does, where it has one."""
        if one.condition is None:
            return True
        try:
            environment = environment_of(lookup, frame)
            if one.condition.names <= CHEAP | MEMORY:
                return environment.truth(evaluate(one.condition, environment))
            with quiet():
                return environment.truth(evaluate(one.condition, environment))
        except Exception as error:
            self._failed(one, _told_as(error))
        return False

    def told(
        self, one: Watched, moment: Moment, lookup: Callable[[str], Any], frame: FrameType | None
    ) -> list[dict[str, Any]]:
        """The values in a logpoint's text. One that there is not is told as such: the others are worth their line."""
        if not one.message.expressions:
            return []
        environment = environment_of(lookup, frame)
        with quiet():
            values = [(each, _told(each, environment)) for each in one.message.expressions]
        return [value | ({"assumed": True} if self.assumes(moment, each.names) else {}) for each, value in values]

    def _failed(self, one: Watched, error: PrismError) -> None:
        if not one.failed:
            one.failed = True
            self.fail(one.number, f"{error.bare}\n{error.hint}".strip())

    def of_kind(self, kind: BreakpointKind, lookup: Callable[[str], Any], frame: FrameType | None) -> tuple[int, ...]:
        """Numbers of the stops of a kind at which the rank stands in any case: an exception, a divergence."""
        found = [one for one in self.watched if one.kind is kind and self.holds(one, lookup, frame)]
        return tuple(one.number for one in found)

    def admitted(self, hit: list[Watched]) -> list[Watched]:
        """Those that do not let this hit pass; each counts down."""
        kept = []
        for one in hit:
            if one.ignore:
                one.ignore -= 1
            else:
                kept.append(one)
        return kept


def _digest_now(expression: Expression, environment: Environment) -> str:
    try:
        value = evaluate(expression, environment)
    except PrismError:
        return ABSENT
    return digest_of(value)


def _told_as(error: Exception) -> PrismError:
    return error if isinstance(error, PrismError) else UsageError(f"{type(error).__name__}: {str(error)[:200]}")


def _told(expression: Expression, environment: Environment) -> dict[str, Any]:
    """Of what consists of parts only a line: there may be many in one message."""
    try:
        value = evaluate(expression, environment)
        if is_tensor(value) or is_scalar(value):
            return render(value)
        return {"kind": "object", "type": type_name(value), "text": short(value)}
    except PrismError as error:
        why = error.bare
    except Exception as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
    return {"kind": "object", "type": "error", "text": f"<{why}>"}


def line_of(frame: FrameType | None) -> dict[str, Any]:
    """The program's own innermost line, by the names that expressions know it by."""
    own = program_line(frame)
    return {"file": own.f_code.co_filename if own else "", "line": own.f_lineno if own else 0}


def at_line(frame: FrameType | None, file: str, line: int) -> bool:
    """Whether the program's own line, or one that called it, is the one meant. `train.py` is also `/job/train.py`."""
    return any(
        own.f_lineno == line and (own.f_code.co_filename == file or own.f_code.co_filename.endswith("/" + file))
        for own in own_frames(frame)
    )
