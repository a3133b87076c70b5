"""Takes whole texts out of pickles. Nothing in them moves, and nothing is unpickled."""

from __future__ import annotations

import io
import pickletools
from collections import deque
from collections.abc import Iterator, Mapping

# Codes of texts and bytes, and in how many bytes each says its length.
_CODES = {b"\x8c": 1, b"X": 4, b"\x8d": 8, b"C": 1, b"B": 4, b"\x8e": 8, b"\x96": 8}


def masked(data: bytes, shown: Mapping[bytes, bytes]) -> bytes:
    """The pickles with `shown[text]` in the place of each text that is one of `shown`, as long as it.

    The name of a module or a function stays, for the pickle could not be read without it.
    """
    names: set[bytes] | None = None
    for text, instead in shown.items():
        for head in _heads(len(text)):
            if head + text not in data:
                continue
            names = _names(data) if names is None else names
            if text not in names:
                data = data.replace(head + text, head + instead)
    return data


def _heads(size: int) -> Iterator[bytes]:
    return (code + size.to_bytes(count, "little") for code, count in _CODES.items() if size < 1 << 8 * count)


def _names(data: bytes) -> set[bytes]:
    """Of the modules, functions and classes in the pickles that follow one another."""
    file, names = io.BytesIO(data), set[str]()
    try:
        while file.tell() < len(data):
            names |= _names_of_one(file)
    except Exception:  # whatever these bytes are, they are no pickle
        pass
    return {name.encode("utf-8", "surrogatepass") for name in names}


def _names_of_one(file: io.BytesIO) -> set[str]:
    memo: dict[int, object] = {}
    last: deque[object] = deque([None, None], maxlen=2)
    names: set[str] = set()
    for code, argument, _ in pickletools.genops(file):
        match code.name:
            case "STACK_GLOBAL":
                names |= {str(name) for name in last}
                last.append(None)
            case "GLOBAL":
                names |= set(str(argument).split(" "))
                last.append(None)
            case "MEMOIZE":
                memo[len(memo)] = last[-1]
            case "BINPUT" | "LONG_BINPUT":
                memo[int(str(argument))] = last[-1]
            case "BINGET" | "LONG_BINGET":
                last.append(memo.get(int(str(argument))))
            case "FRAME":
                continue
            case _:
                last.append(argument if isinstance(argument, str) else None)
    return names
