"""The language of scripts as a JSON Schema: what editors complete by, and what `--script-schema` prints."""

from __future__ import annotations

import types
from enum import StrEnum
from typing import Any, Union, get_args, get_origin

from prismdbg.expr.parser import Expression
from prismdbg.model.moment import Moment
from prismdbg.script.language import MAX_SECONDS, Count, Name, Script, Seconds, SourceLine, When
from prismdbg.script.reader import MAX_ENTRIES, keys

Json = dict[str, Any]
_NUMBER = "[0-9]{1,18}"
_MOMENT = rf"{_NUMBER}(\.{_NUMBER}(\.{_NUMBER})?)?"

_SCALARS: dict[Any, Json] = {
    str: {"type": "string", "minLength": 1},
    bool: {"type": "boolean"},
    Count: {"type": "integer", "minimum": 0},
    Seconds: {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_SECONDS},
    Moment: {"type": ["string", "number"], "pattern": f"^{_MOMENT}$"},
    Expression: {"type": ["string", "boolean", "number"]},
    Name: {"type": "string", "pattern": "^[^\\W\\d_][\\w .-]{0,79}$"},
    SourceLine: {"type": "string", "pattern": "^[^\\s:]+:[1-9][0-9]{0,6}$"},
    When: {"type": ["string", "number"]},
}


def json_schema() -> Json:
    """Draft 2020-12."""
    definitions: dict[str, Json] = {}
    root = _record(Script, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "prismdbg replay --script",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _record(kind: type, definitions: dict[str, Json]) -> Json:
    properties, required = {}, []
    for name, key in keys(kind).items():
        properties[name] = {"description": key.meaning, **_value(key.wanted, definitions)}
        if key.is_required:
            required.append(name)
        elif (default := _plain(key.default)) not in (None, "", [], False):
            properties[name]["default"] = default
    return {
        "description": " ".join((kind.__doc__ or "").split()),
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        **({"required": required} if required else {}),
    }


def _value(wanted: Any, definitions: dict[str, Json]) -> Json:
    if get_origin(wanted) in (types.UnionType, Union):
        wanted = next(kind for kind in get_args(wanted) if kind is not type(None))
    if get_origin(wanted) is tuple:
        return {"type": "array", "maxItems": MAX_ENTRIES, "items": _value(get_args(wanted)[0], definitions)}
    if wanted in _SCALARS:
        return _SCALARS[wanted]
    if issubclass(wanted, StrEnum):
        return {"enum": [str(choice) for choice in wanted]}
    if wanted.__name__ not in definitions:
        definitions[wanted.__name__] = {}
        definitions[wanted.__name__] = _record(wanted, definitions)
    return {"$ref": f"#/$defs/{wanted.__name__}"}


def _plain(default: Any) -> Any:
    match default:
        case Count() | Seconds():
            return default.value or None
        case Moment():
            return None
        case tuple():
            return list(default)
        case StrEnum():
            return str(default)
        case _:
            return default
