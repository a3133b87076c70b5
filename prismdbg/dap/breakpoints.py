"""Breakpoints as a client sets them: each time the whole list of a file, of functions, of exceptions or of data."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prismdbg.dap.arguments import Arguments
from prismdbg.dap.sources import Sources
from prismdbg.errors import PrismError, UsageError, quoted
from prismdbg.expr.parser import parse
from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.session.breakpoint_check import check, doubt
from prismdbg.session.breakpoint_line import parse_breakpoint, require_change
from prismdbg.session.breakpoints import BreakpointList, BreakpointSpec
from prismdbg.session.known import Known

FILTERS = (
    {
        "filter": "nan",
        "label": "NaN or infinity",
        "description": "Stop where a collective sends or receives a NaN or an infinity",
        "default": True,
        "supportsCondition": True,
        "conditionDescription": "an expression such as: op == 'all_reduce' and step > 3",
    },
)
_HITS = re.compile(r"\s*(>=|>)?\s*([0-9]{1,9})\s*")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One of a client's list. `spec`: None where it cannot be set, and `problem` says why. `more`: what its answer says
    beside."""

    spec: BreakpointSpec | None = None
    problem: str = ""
    more: Json = field(default_factory=dict)


class Breakpoints:
    """Keeps the session's list; the rank is told when it goes on. Those that a client sends again keep their hits."""

    def __init__(
        self, kept: BreakpointList, known: Known, sources: Sources, first_line: int, nan_since: int = 0
    ) -> None:
        """`first_line`: the number of a file's first line, for the client. nan_since: the step of the NaN that the
        capsule was made for, where there are others before it."""
        self._kept, self._known, self._sources, self._first_line = kept, known, sources, first_line
        self._nan_since = f"step >= {nan_since}" if nan_since else ""
        self._set: dict[str, list[tuple[int, Wanted]]] = {}

    def requests(self) -> dict[str, Callable[[Arguments], Json]]:
        return {
            "setBreakpoints": self._of_source,
            "setFunctionBreakpoints": self._of_functions,
            "setExceptionBreakpoints": self._of_exceptions,
            "setDataBreakpoints": self._of_data,
            "breakpointLocations": self._locations,
        }

    def reason(self, numbers: Sequence[int]) -> str:
        """The protocol's word for a stop at these."""
        for key, kept in self._set.items():
            if any(number in numbers for number, _ in kept):
                return key if key in ("function breakpoint", "data breakpoint", "exception") else "breakpoint"
        return "breakpoint"

    def _of_source(self, arguments: Arguments) -> Json:
        source = arguments.object("source")
        try:
            path, problem = self._sources.path_of(source), ""
        except UsageError as error:
            path, problem = source.text("path", source.text("name", "")), _in_one_line(error)
        wanted = [
            self._tried(each, lambda e=each: self._at_line(e, path, problem), self._place(each, path))  # type: ignore[misc]
            for each in arguments.objects("breakpoints")
        ]
        return self._replace(f"source {path}", wanted)

    def _at_line(self, each: Arguments, path: str, problem: str) -> BreakpointSpec:
        if problem:
            raise UsageError(problem)
        line = each.number("line") - self._first_line + 1
        return BreakpointSpec(kind=BreakpointKind.COLLECTIVE, file=path, line=line)

    def _place(self, each: Arguments, path: str) -> Json:
        return {"line": each.number("line"), "source": self._sources.of(path)}

    def _of_functions(self, arguments: Arguments) -> Json:
        wanted = [
            self._tried(each, lambda e=each: parse_breakpoint(e.text("name")))  # type: ignore[misc]
            for each in arguments.objects("breakpoints")
        ]
        return self._replace("function breakpoint", wanted)

    def _of_exceptions(self, arguments: Arguments) -> Json:
        plain = [Arguments({"filterId": name}, "setExceptionBreakpoints") for name in arguments.texts("filters")]
        wanted = [
            self._tried(each, lambda e=each: self._filter(e))  # type: ignore[misc]
            for each in (*plain, *arguments.objects("filterOptions"))
        ]
        return self._replace("exception", wanted)

    def _filter(self, each: Arguments) -> BreakpointSpec:
        spec = _filter(each.text("filterId"))
        return spec if each.text("condition", "").strip() else replace(spec, condition=self._nan_since)

    def _of_data(self, arguments: Arguments) -> Json:
        wanted = [self._tried(each, lambda e=each: _change(e)) for each in arguments.objects("breakpoints")]  # type: ignore[misc]
        return self._replace("data breakpoint", wanted)

    def _locations(self, arguments: Arguments) -> Json:
        """The lines that issue a recorded collective."""
        offset = self._first_line - 1
        first = arguments.number("line") - offset
        last = arguments.number("endLine", first + offset) - offset
        lines = self._known.lines_of(self._sources.path_of(arguments.object("source")))
        return {"breakpoints": [{"line": line + offset} for line in lines if first <= line <= last]}

    def _tried(self, each: Arguments, make: Callable[[], BreakpointSpec], more: Json | None = None) -> Wanted:
        """A breakpoint that cannot be set is answered as such; the others of the list are set."""
        try:
            spec, message = make(), each.text("logMessage", "")
            if each.has("condition") and (condition := each.text("condition").strip()):
                if spec.condition:
                    raise UsageError("this breakpoint has two conditions", hint="write both as one: A and B")
                parse(condition)
                spec = replace(spec, condition=condition)
            spec = replace(
                spec, ignore=_ignored(each.text("hitCondition", "")), log_only=bool(message), message=message
            )
            check(spec, self._known)
            return Wanted(spec=spec, problem=doubt(spec, self._known), more=more or {})
        except PrismError as error:
            return Wanted(problem=_in_one_line(error), more=more or {})

    def _replace(self, key: str, wanted: Sequence[Wanted]) -> Json:
        before = [(number, old) for number, old in self._set.pop(key, []) if self._is_kept(number)]
        numbers: list[int | None] = []
        for each in wanted:
            same = next((pair for pair in before if each.spec is not None and pair[1] == each), None)
            if same is not None:
                before.remove(same)
            numbers.append(same[0] if same is not None else None)
        for number, _ in before:
            self._kept.remove(number)
        now = self._set.setdefault(key, [])
        return {"breakpoints": [self._added(each, number, now) for each, number in zip(wanted, numbers, strict=True)]}

    def _added(self, wanted: Wanted, number: int | None, now: list[tuple[int, Wanted]]) -> Json:
        problem = wanted.problem
        if number is None and wanted.spec is not None:
            try:
                number = self._kept.add(wanted.spec).number
            except UsageError as error:  # there are too many
                problem = _in_one_line(error)
        if number is not None:
            now.append((number, wanted))
        return {
            "verified": not problem,
            **({"message": problem} if problem else {}),
            **({"id": number} if number is not None else {}),
            **wanted.more,
        }

    def _is_kept(self, number: int) -> bool:
        return any(spec.number == number for spec in self._kept.all)


def _filter(name: str) -> BreakpointSpec:
    if name != "nan":
        raise UsageError(
            f"unknown exception filter {quoted(name)}", hint="use nan; exceptions and divergences always stop"
        )
    return BreakpointSpec(kind=BreakpointKind.NAN)


def _change(each: Arguments) -> BreakpointSpec:
    expression, access = each.text("dataId"), each.text("accessType", "write")
    if access != "write":
        raise UsageError(
            f"a value is watched for changes, not for access {quoted(access)}", hint="use accessType write"
        )
    parse(expression)
    require_change(expression)
    return BreakpointSpec(kind=BreakpointKind.CHANGE, expression=expression)


def _ignored(text: str) -> int:
    """How many hits are let pass: of `3` and `>= 3` two, of `> 3` three."""
    if not text.strip():
        return 0
    found = _HITS.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{quoted(text)} is not a hit condition", hint="write 3 or >= 3 (the third hit and later), or > 3"
        )
    count = int(found.group(2))
    return count if found.group(1) == ">" else max(count - 1, 0)


def _in_one_line(error: PrismError) -> str:
    """Without the caret under what is wrong."""
    text = str(error).partition("\n")[0]
    return f"{text}; {error.hint}" if error.hint else text
