"""JSON as the rank writes it into its log: a reader accepts it, whatever a program has in its texts."""

from __future__ import annotations

import json
import re
from typing import Any

_NO_CHARACTER = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # half of a pair; the others are bytes of a path


def dump(value: Any, **style: Any) -> str:
    """As `json.dumps`. Half a character, which a text that was cut may end with, becomes a replacement character; what
    Python makes of a path that is not UTF-8 stays."""
    text = json.dumps(value, **style)
    return json.dumps(_whole(value), **style) if "\\ud" in text else text


def _whole(value: Any) -> Any:
    match value:
        case str():
            return _NO_CHARACTER.sub("\ufffd", value)
        case dict():
            return {_whole(key): _whole(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_whole(inner) for inner in value]
    return value
