"""A value as an agent or the record gives it, drawn: statistics, a histogram, elements in a grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from prismdbg.session.answers import Differs
from prismdbg_tui.drawing import figures

Json = dict[str, Any]

HISTOGRAM_LINES = 3
_LEVELS = " ▁▂▃▄▅▆▇█"
_CELL = 12
_STATS = ("min", "max", "mean", "std", "nan", "inf")
_BAD = ("nan", "inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ink:
    """The theme's colours for values."""

    name: str
    quiet: str
    bad: str
    good: str
    bar: str
    width: int


def draw(title: str, value: Json, ink: Ink, differs: Differs | None = None) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    lines = list(_lines(value, ink))
    first = lines.pop(0) if lines else Text()
    text.append(title, f"bold {ink.name}")
    text.append("  ")
    text.append_text(first)
    if differs is not None:
        lines.insert(0, draw_difference(differs, ink))
    for line in lines:
        text.append("\n  ")
        text.append_text(line)
    return text


def draw_line(title: str, value: Json, ink: Ink) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    return text.append(f"{figures.clean(title)}  ", f"bold {ink.name}").append(figures.clean(short(value)))


def short(value: Json) -> str:
    """In one line: a number, or a tensor's type and what stands out of it."""
    match value.get("kind"):
        case "scalar":
            return str(value["value"])
        case "tensor":
            stats = value["stats"] or {}
            bad = " ".join(f"{name} {stats[name]}" for name in _BAD if stats.get(name))
            shown = f"{value['dtype']}[{', '.join(map(str, value['shape']))}]"
            if stats.get("min") is None:
                return f"{shown} {bad}".rstrip()
            low, high = figures.number(stats["min"]), figures.number(stats["max"])
            return f"{shown} {low if low == high else f'{low} to {high}'} {bad}".rstrip()
        case "sequence" | "mapping":
            return f"{value['type']} of {value['length']}"
        case _:
            return str(value.get("text") or value.get("type") or "...")


def draw_difference(differs: Differs, ink: Ink) -> Text:
    """Against the recorded value of the same tensor."""
    if differs.equal:
        return Text("= as recorded, to the last bit", ink.good)
    text = Text(f"≠ {figures.count(differs.differing)} of {figures.count(differs.elements)} differ", f"bold {ink.bad}")
    if differs.largest is not None:
        text.append(f", by {figures.number(differs.largest)} at most", ink.bad)
    return text


def _lines(value: Json, ink: Ink) -> Iterator[Text]:
    match value.get("kind"):
        case "tensor":
            yield from _tensor(value, ink)
        case "scalar":
            shown = repr(value["value"]) if value["type"] == "str" else str(value["value"])
            yield Text(figures.clean(shown))
        case "sequence":
            yield Text(f"{value['type']} of {value['length']}")
            for number, item in enumerate(value["items"]):
                yield from _item(f"[{number}]", item, ink)
        case "mapping":
            yield Text(f"{value['type']} of {value['length']}")
            for key, item in value["items"]:
                yield from _item(f"[{key}]", item, ink)
        case "module":
            state = "training" if value["training"] else "evaluating"
            trainable = figures.count(value["trainable"])
            yield Text(f"{value['type']}, {figures.count(value['parameters'])} parameters, {trainable} train, {state}")
            for name, short in [*value["own"], *value["children"]]:
                yield Text.assemble((f".{figures.clean(name)} ", ink.name), figures.clean(short))
        case "object":
            yield Text(figures.clean(str(value["text"])))
            for name, item in value.get("fields", []):
                yield from _item(f".{name}", item, ink)
        case "note":
            yield Text(figures.clean(str(value["text"])), ink.quiet)
        case _:
            yield Text("...", ink.quiet)


def _item(label: str, item: Json, ink: Ink) -> Iterator[Text]:
    first, *rest = _lines(item, ink)
    yield Text.assemble((f"{figures.clean(label)} ", ink.name), first)
    for line in rest:
        yield Text.assemble("  ", line)


def _tensor(value: Json, ink: Ink) -> Iterator[Text]:
    shape = ", ".join(map(str, value["shape"]))
    gradient = ", requires grad" if value["requires_grad"] else ""
    yield Text.assemble((f"{value['dtype']}[{shape}]", "bold"), (f" {value['device']}{gradient}", ink.quiet))
    if sharded := value.get("sharded"):
        whole = ", ".join(map(str, sharded["shape"]))
        yield Text(f"this rank's part of [{whole}], {', '.join(sharded['placements'])}", ink.quiet)
    if (stats := value["stats"]) is None:
        yield Text("its elements cannot be read", ink.quiet)
        return
    if value["shape"]:  # of a single number they say nothing
        yield from _stats(stats, ink)
        histogram = value["histogram"]
        if histogram and histogram["high"] > histogram["low"]:
            yield from _histogram(histogram, ink)
    if value["slice"]:
        yield Text(f"{value['slice']} of it", ink.quiet)
    yield from _grid(value["values"], ink)


def _stats(stats: Json, ink: Ink) -> Iterator[Text]:
    """On as many lines as they need: a NaN must not stand where nobody sees it."""
    line = Text()
    for name in sorted(_STATS, key=lambda name: not (name in _BAD and stats[name])):
        bad = name in _BAD and stats[name]
        part = Text.assemble(
            (f"{name} ", f"bold {ink.bad}" if bad else ink.quiet),
            (f"{figures.number(stats[name])}  ", f"bold {ink.bad}" if bad else ""),
        )
        if len(line) and len(line) + len(part) > ink.width:
            yield line
            line = Text()
        line.append_text(part)
    yield line


def _histogram(histogram: Json, ink: Ink) -> Iterator[Text]:
    """As wide as there is room for; a bin that holds anything is never empty."""
    counts = histogram["counts"]
    most, wide = max(counts) or 1, max(1, min(3, (ink.width - 4) // max(len(counts), 1)))
    heights = [-(-count * 8 * HISTOGRAM_LINES // most) for count in counts]
    for line in reversed(range(HISTOGRAM_LINES)):
        yield Text("".join(_LEVELS[min(max(h - 8 * line, 0), 8)] * wide for h in heights), ink.bar)
    low, high = figures.number(histogram["low"]), figures.number(histogram["high"])
    yield Text(low + high.rjust(max(len(counts) * wide - len(low), len(high) + 1)), ink.quiet)


def _grid(values: Any, ink: Ink) -> Iterator[Text]:
    for row in _rows(values):
        across = max((ink.width - 4) // _CELL, 1)
        for start in range(0, len(row), across):
            line = Text()
            for item in row[start : start + across]:
                shown = figures.number(item)
                line.append(shown.rjust(_CELL), ink.bad if shown in ("nan", "inf", "-inf") else "")
            yield line


def _rows(values: Any) -> Iterator[list[Any]]:
    if isinstance(values, list) and values and isinstance(values[0], list):
        for row in values:
            yield from _rows(row)
    else:
        yield values if isinstance(values, list) else [values]
