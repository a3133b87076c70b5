"""An exception that a future's callback raised, as torch words it, and the one that was meant."""

from __future__ import annotations

import builtins
import re

_WORDED = re.compile(
    r"Got the following error when running the callback: (?P<type>[A-Za-z_.]+): (?P<text>.*?)(\n\nAt:\n.*)?", re.DOTALL
)


def meant(type_name: str, text: str) -> tuple[str, str]:
    """Type and text before torch wrapped them; as they are, where it did not."""
    while (worded := _WORDED.fullmatch(text.rstrip("\n") if text.startswith("Got the") else text)) is not None:
        type_name, text = worded["type"], worded["text"]
    return type_name, text


def error_of(type_name: str, text: str, *modules: object) -> Exception:
    """Of the class of that name in one of `modules` or Python's own; of another's it is a RuntimeError, as torch's
    mostly are."""
    for module in (*modules, builtins):
        kind = getattr(module, type_name.rpartition(".")[2], None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            return kind(text)
    return RuntimeError(text)
