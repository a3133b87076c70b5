"""A value that a rank rendered, in one line of a report."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

MAX_LINE = 200
_SHOWN_ITEMS = 3


def value_line(value: Json) -> str:
    text = " ".join(_text(value).split())
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}..."


def truth(value: Json) -> bool | None:
    """Whether the value says yes; None where it says neither, as a tensor of several elements."""
    if value["kind"] == "scalar":
        return bool(value["value"])
    if value["kind"] == "tensor" and not isinstance(element := _element(value), list | type(None)):
        return bool(element)
    return None


def _text(value: Json) -> str:
    match value["kind"]:
        case "scalar":
            return repr(value["value"]) if value["type"] == "str" else str(value["value"])
        case "tensor":
            return _tensor(value)
        case "sequence":
            items = [_text(item) for item in value["items"][:_SHOWN_ITEMS]]
            more = [f"... ({value['length']})"] if value["length"] > _SHOWN_ITEMS else []
            return f"[{', '.join([*items, *more])}]"
        case "mapping":
            return f"{value['type']} of {value['length']}"
        case "module":
            return f"{value['type']}, {value['parameters']} parameters"
        case _:
            return str(value.get("text", "..."))


def _tensor(value: Json) -> str:
    kind = f"{value['dtype']}[{', '.join(map(str, value['shape']))}]"
    element = _element(value)
    if not isinstance(element, list | type(None)):
        return f"{_number(element)} ({kind})"
    stats = value.get("stats")
    if stats is None:
        return kind
    return f"{kind} " + " ".join(f"{name} {_number(stats[name])}" for name in ("min", "max", "mean", "nan", "inf"))


def _element(value: Json) -> Any:
    """The only element; a list or None where there are more, or none."""
    shape, found = value["shape"], value.get("values")
    if any(size != 1 for size in shape):
        return None
    while isinstance(found, list) and len(found) == 1:
        found = found[0]
    return found


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)
