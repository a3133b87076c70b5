"""Where the rank is to stop: values that the session keeps and sends, numbered from 1. What is in them is evaluated in
the rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from prismdbg.errors import UsageError
from prismdbg.expr.parser import Expression, parse
from prismdbg.expr.template import parse_template
from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.model.moment import Moment

MAX_BREAKPOINTS = 100
HELD = frozenset(["allocated", "total"])  # bytes that the program holds now


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakpointSpec:
    """Everything that is given must hold. `ignore`: hits that are still let pass; `expression`: whose change is meant.

    moment: without a collective, any of its step. once: gone after its first stop; log_only: its hits are told and the
    rank goes on. message: what is told, with `{EXPRESSION}` for values; empty for the collective.
    """

    kind: BreakpointKind
    number: int = 0
    op: str = ""
    group: str = ""
    seq: int | None = None
    file: str = ""
    line: int | None = None
    module: str = ""
    peer: int | None = None
    moment: Moment | None = None
    condition: str = ""
    expression: str = ""
    ignore: int = 0
    once: bool = False
    log_only: bool = False
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        """Without what is as it always is: rank 0 and sequence 0 are said. The rank takes the moment as a condition."""
        parts = asdict(self) | {"moment": None, "condition": self.whole_condition}
        parts["message"] = self.message if self.log_only else ""
        said = {name: value for name, value in parts.items() if value != _ALWAYS.get(name)}
        return {**said, "seq": self.seq}

    @property
    def whole_condition(self) -> str:
        """With that of its moment."""
        if self.moment is None:
            return self.condition
        at = f"step == {self.moment.step}"
        at += f" and collective == {self.moment.collective}" if self.moment.collective else ""
        return f"({at}) and ({self.condition})" if self.condition else at

    @property
    def needs_trace(self) -> bool:
        return self.kind is BreakpointKind.ALLOCATION or any(map(asks_for_memory, self.expressions))

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All that the rank evaluates for it."""
        texts = (self.whole_condition, self.expression)
        return (*(parse(text) for text in texts if text), *parse_template(self.message).expressions)

    @property
    def title(self) -> str:
        """As one would type it."""
        parts = [] if self.kind is BreakpointKind.COLLECTIVE else [_WORDS[self.kind]]
        if self.moment is not None:
            parts += [str(self.moment) if self.moment.collective else str(self.moment.step)]
        parts += [self.op] if self.op else []
        parts += [self.expression] if self.expression else []
        parts += [str(self.peer)] if self.peer is not None else []
        parts += [f"on {self.group}"] if self.group else []
        parts += [f"#{self.seq}"] if self.seq is not None else []
        parts += [f"{self.file}:{self.line}"] if self.file else []
        parts += [f"in {self.module}"] if self.module else []
        parts += [f"if {self.condition}"] if self.condition else []
        return " ".join(parts)


_ALWAYS = {part.name: part.default for part in fields(BreakpointSpec)}
_WORDS = {kind: str(kind) for kind in BreakpointKind}


def asks_for_memory(expression: Expression) -> bool:
    """Only a rank that is traced knows how much its program holds."""
    return not expression.names.isdisjoint(HELD)


class BreakpointList:
    """Numbers are given once and never again."""

    def __init__(self) -> None:
        self._stops: dict[int, BreakpointSpec] = {}
        self._next = 1
        self._titles: dict[int, str] = {}  # also of those that are gone
        self.hits: dict[int, int] = {}

    def __iter__(self) -> Any:
        return iter(self.all)

    @property
    def all(self) -> tuple[BreakpointSpec, ...]:
        return tuple(self._stops.values())

    @property
    def needs_trace(self) -> bool:
        """Whether one of them looks at what happens between collectives, or asks how much memory is held."""
        return any(stop.needs_trace for stop in self.all)

    def add(self, spec: BreakpointSpec) -> BreakpointSpec:
        if len(self._stops) >= MAX_BREAKPOINTS:
            raise UsageError(f"there are already {MAX_BREAKPOINTS} breakpoints", hint="delete some")
        numbered = replace(spec, number=self._next)
        self._next += 1
        return self._keep(numbered)

    def get(self, number: int) -> BreakpointSpec:
        if number not in self._stops:
            raise UsageError(f"no breakpoint number {number}", hint="type `breakpoints` to list them")
        return self._stops[number]

    def titles(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """Of each, as one would type it, also where it is gone by now; empty for one that never was in this list."""
        return tuple(self._titles.get(number, "") for number in numbers)

    def message(self, number: int) -> str:
        """A logpoint's text; empty for one that has none or is gone."""
        return self._stops[number].message if number in self._stops else ""

    def remove(self, number: int) -> BreakpointSpec:
        gone = self.get(number)
        del self._stops[number]
        return gone

    def clear(self) -> None:
        self._stops.clear()

    def condition(self, number: int, text: str) -> BreakpointSpec:
        """Another condition, read here; empty for none."""
        if text:
            parse(text)
        return self._change(number, condition=text)

    def ignore(self, number: int, count: int) -> BreakpointSpec:
        return self._change(number, ignore=count)

    def log_only(self, number: int, message: str = "") -> BreakpointSpec:
        """Switched on, or off again; with a message it is on. The last message is kept for the next time."""
        parse_template(message)
        known = self.get(number)
        log_only = bool(message) or not known.log_only
        return self._change(number, log_only=log_only, message=message or known.message)

    def hit(self, number: int) -> None:
        """Of a number that never was in this list nothing is counted."""
        if number in self._titles:
            self.hits[number] = self.hits.get(number, 0) + 1

    def stopped(self, numbers: tuple[int, ...], left: dict[int, int]) -> None:
        """The rank stands because of these; `left`: how many hits each still lets pass."""
        for number, count in left.items():
            if number in self._stops:
                self._change(number, ignore=count)
        for number in numbers:
            self.hit(number)
            if number in self._stops and self._stops[number].once:
                del self._stops[number]

    def to_json(self) -> list[dict[str, Any]]:
        return [stop.to_json() for stop in self.all]

    def _change(self, number: int, **changes: Any) -> BreakpointSpec:
        return self._keep(replace(self.get(number), **changes))

    def _keep(self, stop: BreakpointSpec) -> BreakpointSpec:
        self._stops[stop.number], self._titles[stop.number] = stop, stop.title
        return stop
