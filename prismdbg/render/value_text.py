"""A value that a rank rendered (`prismdbg.rank.debug.rendering`) as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prismdbg.model.plain_text import one_line

Json = dict[str, Any]

MANY_LINES = 40
FEW_ITEMS = 20

_BARS = " ▁▂▃▄▅▆▇█"
_INDENT = "  "


def value_text(value: Json, *, only_stats: bool = False, brief: bool = False) -> str:
    """`only_stats`: of tensors everything but the values; `brief`: one line."""
    lines = list(_lines(_without_values(value) if only_stats or brief else value))
    if brief:
        return one_line("  ".join(line.strip() for line in lines[:2]))
    if len(lines) > MANY_LINES and value["kind"] in ("sequence", "mapping"):
        lines = list(_in_short(value))
    if hidden := value.get("hidden"):
        names = ", ".join(hidden)
        lines.append(
            f"note: the frame also has {names}; this is the value of the event. Type local.{hidden[0]} for the value "
            "in the frame"
        )
    if value.get("assumed"):
        lines.append("note: depends on synthesized peers")
    return "\n".join(map(one_line, lines))


def in_a_sentence(value: Json) -> str:
    """In one line; of a number and of a text no more than itself."""
    if value["kind"] == "tensor" and value["shape"] == [] and value["values"] is not None:
        told = number(value["values"]) + (" (this rank's part)" if value.get("sharded") else "")
    elif value["kind"] == "scalar":
        told = one_line(str(value["value"]))
    else:
        told = value_text({**value, "assumed": False}, brief=True)
    return f"{told} (depends on synthesized peers)" if value.get("assumed") else told


def _without_values(value: Json) -> Json:
    if value["kind"] == "sequence":
        return {**value, "items": [_without_values(item) for item in value["items"]]}
    return {**value, "values": None, "slice": ""} if value["kind"] == "tensor" else value


def _lines(value: Json, indent: str = "") -> Iterator[str]:
    match value["kind"]:
        case "tensor":
            yield from (indent + line for line in _tensor(value))
        case "scalar":
            yield f"{indent}{_scalar(value)}"
        case "sequence":
            yield f"{indent}{value['type']} of {value['length']}"
            for number, item in enumerate(value["items"]):
                yield from _item(f"[{number}]", item, indent)
            yield from _rest(value, indent)
        case "mapping":
            yield f"{indent}{value['type']} of {value['length']}"
            for key, item in value["items"]:
                yield from _item(f"[{key}]", item, indent)
            yield from _rest(value, indent)
        case "module":
            yield from (indent + line for line in _module(value))
        case "object":
            yield f"{indent}{value['text']}"
            for name, item in value.get("fields", []):
                yield from _item(f".{name}", item, indent)
        case _:
            yield f"{indent}..."


def _in_short(value: Json) -> Iterator[str]:
    """A line for each of the first items: one is printed in full by its key."""
    is_mapping = value["kind"] == "mapping"
    items = value["items"] if is_mapping else list(enumerate(value["items"]))
    yield f"{value['type']} of {value['length']}"
    for key, item in items[:FEW_ITEMS]:
        yield f"{_INDENT}[{key}] {next(_lines(item)).strip()}"
    if value["length"] > FEW_ITEMS:
        yield f"{_INDENT}... {value['length'] - FEW_ITEMS} more"


def _item(label: str, item: Json, indent: str) -> Iterator[str]:
    first, *rest = _lines(item, indent + _INDENT)
    yield f"{indent}{_INDENT}{label} {first.strip()}"
    yield from (_INDENT + line for line in rest)


def _rest(value: Json, indent: str) -> Iterator[str]:
    if value["length"] > len(value["items"]):
        yield f"{indent}{_INDENT}... {value['length'] - len(value['items'])} more"


def _scalar(value: Json) -> str:
    return repr(value["value"]) if value["type"] == "str" else str(value["value"])


def _tensor(value: Json) -> Iterator[str]:
    gradient = ", requires grad" if value["requires_grad"] else ""
    yield f"{value['dtype']}[{', '.join(map(str, value['shape']))}] {value['device']}{gradient}"
    if sharded := value.get("sharded"):
        yield f"  this rank's part of [{', '.join(map(str, sharded['shape']))}], {', '.join(sharded['placements'])}"
    if (stats := value["stats"]) is None:
        yield "  its elements cannot be read"
        return
    alone = value["shape"] == [] and value["values"] is not None  # of a single number they say nothing
    if not alone:
        yield "  " + "  ".join(f"{name} {number(stats[name])}" for name in ("min", "max", "mean", "std", "nan", "inf"))
    if (histogram := value["histogram"]) and not alone:
        yield f"  {number(histogram['low'])} {bars(histogram['counts'])} {number(histogram['high'])}"
    if value["slice"]:
        yield f"  {value['slice']} of it:"
    if value["values"] is not None:
        yield from ("  " + line for line in rows(value["values"]))


def bars(counts: list[int]) -> str:
    """One block a bin; a bin that holds anything is never empty."""
    most = max(counts)
    return "".join(_BARS[-(-count * 8 // most) if most else 0] for count in counts)


def rows(values: Any) -> Iterator[str]:
    """Nested lists, a line for each innermost one."""
    if isinstance(values, list) and values and isinstance(values[0], list):
        for row in values:
            yield from rows(row)
    elif isinstance(values, list):
        yield "[" + "  ".join(f"{number(value):>11}" for value in values) + "]"
    else:
        yield number(values)


def number(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else "-" if value is None else str(value)


def _module(value: Json) -> Iterator[str]:
    mode = "training" if value["training"] else "evaluating"
    yield f"{value['type']}, {value['parameters']} parameters ({value['trainable']} trainable), {mode}"
    for name, text in [*value["own"], *value["children"]]:
        yield f"  .{name} {text}"
