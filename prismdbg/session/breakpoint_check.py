"""What a stop says, held against what there is: parts that its kind does not have, names that nobody has. Pure."""

from __future__ import annotations

import difflib

from prismdbg.errors import UsageError, quoted
from prismdbg.expr import tree
from prismdbg.expr.functions import SIGNATURES
from prismdbg.expr.lexer import UNITS
from prismdbg.expr.parser import Expression, parse
from prismdbg.expr.place import complaint
from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.session.breakpoint_line import LABELS
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg.session.expression_types import check_kinds
from prismdbg.session.known import Known

MAX_LISTED = 12
STOPPING = (BreakpointKind.EXCEPTION, BreakpointKind.DIVERGENCE)  # the rank stops there also without a breakpoint
_OF_BOTH = frozenset(["op", "bytes", "allocated", "total", "step", "collective", "moment", "module", "file", "line"])
_OF_A_CALL = _OF_BOTH | {"group", "axis", "seq", "dtype", "peer", "input", "out", "synthesized"}
_OF_AN_ALLOCATION = _OF_BOTH | {"outer_op", "size", "reason"}
NAMES: dict[BreakpointKind, frozenset[str]] = {
    BreakpointKind.COLLECTIVE: _OF_A_CALL,
    BreakpointKind.NAN: _OF_A_CALL,
    BreakpointKind.PEER: _OF_A_CALL,
    BreakpointKind.CHANGE: _OF_A_CALL,
    BreakpointKind.ALLOCATION: _OF_AN_ALLOCATION,
    BreakpointKind.EXCEPTION: frozenset(["exception", "type", "text", "step", "collective", "moment", "file", "line"]),
    BreakpointKind.DIVERGENCE: _OF_A_CALL,
}
_EVERY_NAME = frozenset().union(*NAMES.values())
_CALLS = ("op", "group", "seq", "file", "module")
_PARTS: dict[BreakpointKind, tuple[str, ...]] = {
    BreakpointKind.COLLECTIVE: _CALLS,
    BreakpointKind.NAN: _CALLS,
    BreakpointKind.CHANGE: _CALLS,
    BreakpointKind.ALLOCATION: ("op", "file", "module"),
    BreakpointKind.EXCEPTION: (),
    BreakpointKind.DIVERGENCE: (),
    BreakpointKind.PEER: (*_CALLS, "peer"),
}
if lacking := set(BreakpointKind) - (NAMES.keys() & _PARTS.keys()):
    raise TypeError(f"session/breakpoint_check.py lacks {', '.join(sorted(lacking))}")


def check(spec: BreakpointSpec, known: Known) -> None:
    """`UsageError` for what can never be hit, or never be decided."""
    _check_parts(spec)
    if spec.log_only and spec.kind in STOPPING:
        raise UsageError(
            f"a breakpoint at {spec.kind} cannot be a logpoint: the rank always stops there", hint="leave it as it is"
        )
    if spec.line == 0:
        raise UsageError(f"{spec.file}:0 is not a line", hint="count lines from 1")
    if spec.group and not known.has_group(spec.group):
        groups = ", ".join(dict.fromkeys(group.title for group in known.groups))
        raise UsageError(f"unknown group {quoted(spec.group)}", hint=f"use one of: {groups}")
    if spec.peer is not None and 0 < known.world_size <= spec.peer:
        raise UsageError(f"unknown rank {spec.peer}", hint=f"use a rank from 0 to {known.world_size - 1}")
    for expression in spec.expressions:
        check_names(expression, spec.kind, known)


def check_names(expression: Expression, kind: BreakpointKind, known: Known) -> None:
    """Names are the event's, or the program's; which words the program has is known by its source."""
    _check(expression, NAMES[kind], f"the event ({kind})", known)
    check_kinds(expression, NAMES[kind])


def check_value(expression: Expression, known: Known) -> None:
    """As `check_names`, of what is asked at stops of any kind."""
    _check(expression, _EVERY_NAME, "a breakpoint", known)
    check_kinds(expression, _OF_BOTH)


def _check(expression: Expression, mine: frozenset[str], whose: str, known: Known) -> None:
    for node in tree.walk(expression.root):
        if not isinstance(node, tree.Name) or node.name in mine or node.name == "local":
            continue
        if known.words is None or node.name in known.words:
            continue
        near = difflib.get_close_matches(node.name, sorted(mine), 1)
        if node.name in _EVERY_NAME:
            kinds = ", ".join(kind for kind, names in NAMES.items() if node.name in names)
            hint = f"use {node.name} only at: {kinds}"
        elif near:
            hint = f"use {near[0]}, if you mean that"
        else:
            hint = f"use one of: {' '.join(sorted(mine))}"
        raise complaint(
            expression.text,
            node.column,
            f"unknown name {quoted(node.name)}: neither in {whose} nor in the program",
            hint=f"{hint}; for a variable of the program: local.NAME",
        )


def doubt(spec: BreakpointSpec, known: Known) -> str:
    """What lets one think that a stop is never come to; empty where nothing does."""
    if spec.condition and (text := doubt_of_op(parse(spec.condition), spec.kind)):
        return text
    if spec.peer is not None and known.peers is not None and spec.peer not in known.peers:
        others = ", ".join(map(str, sorted(known.peers))) or "none"
        return f"no recorded send or receive is with rank {spec.peer}; recorded ranks: {others}"
    if not spec.file or not known.lines:
        return ""
    if not known.has_file(spec.file):
        return f"the program has no file {spec.file}; its files: {', '.join(known.file_names)}"
    lines = known.lines_of(spec.file)
    if spec.kind is BreakpointKind.ALLOCATION or spec.line in lines:
        return ""
    none = "no recorded collective" + (" after that moment" if known.earlier else "")
    listed = ", ".join(map(str, lines[:MAX_LISTED])) + (", ..." if len(lines) > MAX_LISTED else "")
    there = f"this file issues collectives at lines {listed}" if lines else f"this file issues {none}"
    if spec.line is not None and known.is_earlier(spec.file, spec.line):
        return f"the recorded collectives of {spec.file}:{spec.line} are before the capsule's start moment; {there}"
    return f"no recorded collective is issued at {spec.file}:{spec.line}; {there}"


def doubt_of_op(expression: Expression, kind: BreakpointKind) -> str:
    """Of a condition that compares a collective's operator with what no collective is called."""
    if "group" not in NAMES[kind]:
        return ""  # an allocation's operators are any
    for node in tree.walk(expression.root):
        if not (isinstance(node, tree.Comparison) and isinstance(node.first, tree.Name) and node.first.name == "op"):
            continue
        for _, other in node.rest:
            if isinstance(other, tree.Literal) and isinstance(other.value, str) and other.value not in LABELS:
                near = difflib.get_close_matches(other.value, LABELS, 1)
                return f"unknown collective {quoted(other.value)}" + (f"; did you mean {near[0]}?" if near else "")
    return ""


def names_help() -> str:
    """What conditions may use, for `help break`."""
    rows = [
        ("a collective's names", " ".join(sorted(_OF_A_CALL))),
        ("an allocation's", " ".join(sorted(_OF_AN_ALLOCATION))),
        ("an exception's", " ".join(sorted(NAMES[BreakpointKind.EXCEPTION]))),
        ("the program's", "local.NAME, or only NAME if the event has no such name: local.loss > 3"),
        ("functions", " ".join(sorted(SIGNATURES))),
        ("units", " ".join(UNITS)),
        ("peer RANK", "only sends to this rank and receives from it"),
        ("allocated, total", "live bytes of the program; this turns on tracing"),
    ]
    return "\n".join(f"    {name:<22}{text}" for name, text in rows)


def _check_parts(spec: BreakpointSpec) -> None:
    has = _PARTS[spec.kind]
    for part in (*_CALLS, "peer"):
        if part not in has and getattr(spec, part) not in ("", None):
            words = {"op": "an operator", "seq": "a sequence number", "file": "a line", "group": "a group"}
            what = words.get(part, f"a {part}")
            hint = (
                "write it as a condition: if ..."
                if spec.kind is not BreakpointKind.COLLECTIVE
                else "write: break peer RANK"
            )
            raise UsageError(f"a breakpoint at {spec.kind} takes no {what.partition(' ')[2]}", hint=hint)
