"""Plain data out of a pickle: dictionaries, lists, tuples, texts, numbers. Nothing that a pickle names is ever called.

The opcodes are those of Python's `pickletools` (protocols 2 to 5), without all that imports, builds or calls.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from prismdbg.errors import CapsuleError

MOST_VALUES = 1 << 22  # of a dump of 100,000 collectives with 20 frames each; together about 300 MiB
# For a reader that follows each reference, for each byte of the file. A frame, which many stacks share, is fifteen
# values in two to five bytes, but not much else in a dump is shared.
VALUES_A_BYTE = 8
FREE_VALUES = 1 << 16
_CHARACTERS = 16  # of a text count as one value
_BYTE, _SHORT, _UNSIGNED, _SIGNED, _LONG, _DOUBLE = map(struct.Struct, ("<B", "<H", "<I", "<i", "<Q", ">d"))
_DAMAGED = "the file is damaged, or it contains more than plain data"


class _Mark:
    """Where a list, dictionary or tuple begins on the stack."""


_MARK = _Mark()


def read_pickle(data: bytes, where: str, hint: str = _DAMAGED, *, looks_once: bool = False) -> Any:
    """The one value of `data`. Raises `CapsuleError` for what is damaged, too large, or asks for anything but data; for
    what repeats its own parts too often, too, unless the caller `looks_once` at what several values share."""
    try:
        return _Reader(data, None if looks_once else _Repeats(FREE_VALUES + VALUES_A_BYTE * len(data))).value()
    except (IndexError, KeyError, struct.error, UnicodeDecodeError, TypeError, ValueError) as error:
        raise CapsuleError(f"{where} does not contain a pickle of plain data: {error}", hint=hint) from None


class _Repeats:
    """How many values there are for who follows each reference: two bytes can refer to a list of a million numbers.

    What was referred to is whole: what it grew by afterwards would not be counted, and it could contain itself. Nothing
    that was made goes away before the end, so each value has an id of its own.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._sizes: dict[int, int] = {}  # of lists, dictionaries and tuples with what is in them, by id
        self._whole: set[int] = set()

    def grow(self, target: object, items: Iterable[object]) -> None:
        if id(target) in self._whole:
            raise ValueError("a value that another one refers to is changed")
        self._sizes[id(target)] = self._size(target) + sum(map(self._size, items))

    def refer(self, value: object) -> None:
        self._left -= self._size(value)
        if self._left < 0:
            raise ValueError("the same values are repeated too often")
        if isinstance(value, list | dict):
            self._whole.add(id(value))

    def _size(self, value: object) -> int:
        return 1 + len(value) // _CHARACTERS if isinstance(value, str | bytes) else self._sizes.get(id(value), 1)


class _Reader:
    def __init__(self, data: bytes, repeats: _Repeats | None) -> None:
        self._data = memoryview(data)
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._values = 0
        self._repeats = repeats

    def value(self) -> Any:
        while (code := self._number(_BYTE)) != ord("."):
            if (step := _STEPS.get(code)) is None:
                raise ValueError(f"opcode {bytes([code])!r} at byte {self._at - 1}")
            step(self)
        (value,) = self._stack
        return value

    def _take(self, size: int) -> bytes:
        self._require(size)
        self._at += size
        return bytes(self._data[self._at - size : self._at])

    def _require(self, size: int) -> None:
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError(f"it ends at byte {len(self._data)}")

    def _number(self, form: struct.Struct) -> Any:
        self._require(form.size)
        (value,) = form.unpack_from(self._data, self._at)
        self._at += form.size
        return value

    def push(self, value: object) -> None:
        self._values += 1
        if self._values > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES} values")
        self._stack.append(value)

    def _since_mark(self) -> list[Any]:
        for at in range(len(self._stack) - 1, -1, -1):
            if self._stack[at] is _MARK:
                found = self._stack[at + 1 :]
                del self._stack[at:]
                return found
        raise ValueError("a mark is missing")

    def number(self, form: struct.Struct) -> None:
        self.push(self._number(form))

    def long(self, size_form: struct.Struct) -> None:
        size = self._number(size_form)
        if size > 16:
            raise ValueError(f"a number of {size} bytes")
        self.push(int.from_bytes(self._take(size), "little", signed=True))

    def text(self, size_form: struct.Struct) -> None:
        self.push(self._take(self._number(size_form)).decode())

    def raw(self, size_form: struct.Struct) -> None:
        self.push(self._take(self._number(size_form)))

    def skip(self, size: int) -> None:
        self._take(size)

    def put(self, form: struct.Struct) -> None:
        self._memo[self._number(form)] = self._last()

    def memoize(self) -> None:
        self._memo[len(self._memo)] = self._last()

    def get(self, form: struct.Struct) -> None:
        """What is there already is made once: a place on the stack is no more than the file's own bytes ask for."""
        value = self._memo[self._number(form)]
        if self._repeats is not None:
            self._repeats.refer(value)
        self._stack.append(value)

    def append(self) -> None:
        self._extend([self._pop()])

    def appends(self) -> None:
        self._extend(self._since_mark())

    def set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._update([key, value])

    def set_items(self) -> None:
        self._update(self._since_mark())

    def tuple_of(self, size: int) -> None:
        items = [self._pop() for _ in range(size)]
        self._push_filled(tuple(reversed(items)))

    def tuple_since_mark(self) -> None:
        self._push_filled(tuple(self._since_mark()))

    def list_since_mark(self) -> None:
        self._push_filled(self._since_mark())

    def _push_filled(self, value: list[Any] | tuple[Any, ...]) -> None:
        self.push(value)
        self._grow(value, value)

    def dict_since_mark(self) -> None:
        items = self._since_mark()
        self.push({})
        self._update(items)

    def _extend(self, items: list[Any]) -> None:
        target = self._last()
        if type(target) is not list:
            raise ValueError("something is appended to a value that is not a list")
        self._grow(target, items)
        target += items

    def _update(self, items: list[Any]) -> None:
        target = self._last()
        if type(target) is not dict or len(items) % 2:
            raise ValueError("something is set in a value that is not a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:
                # Python would hash it, without an end for tuples of tuples that share their parts, or too deep for its
                # stack. Whole numbers can be made to fall all into one place of a dictionary.
                raise ValueError(f"a key of a dictionary is a {type(key).__name__}, not a text")
            if key in target:
                raise ValueError("a key of a dictionary occurs twice")
            target[key] = value
        self._grow(target, items[1::2])

    def _grow(self, target: object, items: Iterable[object]) -> None:
        if self._repeats is not None:
            self._repeats.grow(target, items)

    def _last(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise ValueError("a value is missing")
        return self._stack[-1]

    def _pop(self) -> Any:
        value = self._last()
        del self._stack[-1]
        return value


def _step(method: Callable[..., None], *arguments: object) -> Callable[[_Reader], None]:
    return lambda reader: method(reader, *arguments)


_STEPS: dict[int, Callable[[_Reader], None]] = {
    ord(code): step
    for code, step in {
        "\x80": _step(_Reader.skip, 1),  # protocol
        "\x95": _step(_Reader.skip, 8),  # frame
        "(": _step(_Reader.push, _MARK),
        "N": _step(_Reader.push, None),
        "\x88": _step(_Reader.push, True),
        "\x89": _step(_Reader.push, False),
        "J": _step(_Reader.number, _SIGNED),
        "K": _step(_Reader.number, _BYTE),
        "M": _step(_Reader.number, _SHORT),
        "G": _step(_Reader.number, _DOUBLE),
        "\x8a": _step(_Reader.long, _BYTE),
        "\x8b": _step(_Reader.long, _UNSIGNED),
        "X": _step(_Reader.text, _UNSIGNED),
        "\x8c": _step(_Reader.text, _BYTE),
        "\x8d": _step(_Reader.text, _LONG),
        "C": _step(_Reader.raw, _BYTE),
        "B": _step(_Reader.raw, _UNSIGNED),
        "q": _step(_Reader.put, _BYTE),
        "r": _step(_Reader.put, _UNSIGNED),
        "\x94": _step(_Reader.memoize),
        "h": _step(_Reader.get, _BYTE),
        "j": _step(_Reader.get, _UNSIGNED),
        "]": lambda reader: reader.push([]),
        "}": lambda reader: reader.push({}),
        ")": _step(_Reader.push, ()),
        "a": _step(_Reader.append),
        "e": _step(_Reader.appends),
        "s": _step(_Reader.set_item),
        "u": _step(_Reader.set_items),
        "\x85": _step(_Reader.tuple_of, 1),
        "\x86": _step(_Reader.tuple_of, 2),
        "\x87": _step(_Reader.tuple_of, 3),
        "t": _step(_Reader.tuple_since_mark),
        "l": _step(_Reader.list_since_mark),
        "d": _step(_Reader.dict_since_mark),
    }.items()
}
