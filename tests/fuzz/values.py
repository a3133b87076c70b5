"""Changes of one JSON value: other types, extreme numbers, names that lead out, texts that no decoder likes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

TEXTS = (
    "", "\0", "x" * 5000, "\ud800", "\udc80", "../../escaped", "/proc/1/mem", "/proc/sys/vm/swappiness",
    "/sys/power/state", "/./proc/1/fd/9", "/proc/./1/mem",
    "/dev/sda", "/", "//a", "/a/../b", "1.1", "9" * 18 + ".1", "nan", "\x1b]0;x\x07", "ＡＢ", "0", "-1", "1e9", "a\nb",
    "/" + "a" * 5000, "/tmp/" + "n" * 300, "/a" * 2000, "//proc/1/mem", "A=B", "v" * 3_000_000, "relative/path",
    "/escaped/file", "file:///etc/passwd", "{}", "%s%n", "events.00000.seg", "image", "start", "INSIDE", "inside",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2, 7, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63,
    2**64 - 1, 2**64, 2**22, 2**40, 10**9,
    -(2**31), -(2**63), -(2**63) - 1, 10**18, 10**30, 10**400, 0.5, -0.0, 1e308,
    float("inf"), float("-inf"), float("nan"),
)  # fmt: skip


def other_value(rng: Random) -> Any:
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: rng.choice(TEXTS),
        lambda: rng.choice(NUMBERS),
        lambda: rng.choice((None, True, False)),
        lambda: rng.choice(([], {}, [[]], [None], {"": None}, [1, 2], ["a", "a"], {"a": 1})),
        lambda: [rng.choice(NUMBERS) for _ in range(rng.choice((1, 3, 1000)))],
        lambda: _nested(rng.choice((5, 200))),
    )
    return rng.choice(kinds)()


def changed(value: Any, rng: Random) -> Any:
    """A copy in which one place, anywhere below, is another."""
    root = [copy.deepcopy(value)]
    holder, key = _place(root, rng)
    choice = rng.random()
    if choice < 0.6 or holder is root:
        holder[key] = other_value(rng)
    elif choice < 0.75:
        del holder[key]
    elif choice < 0.85 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif isinstance(holder, dict):
        holder[rng.choice((*TEXTS, *map(str, holder)))] = other_value(rng)
    else:
        holder.extend(holder * rng.choice((1, 50)))
    return root[0]


def changed_json(data: bytes, rng: Random) -> bytes:
    if rng.random() < 0.15:
        return _changed_text(data, rng)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):  # an earlier change may have nested it deeply
        return _changed_text(data, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        value = changed(value, rng)
    return json.dumps(value, ensure_ascii=rng.random() < 0.9).encode("utf-8", "surrogatepass")


def _place(root: list[Any], rng: Random) -> tuple[Any, Any]:
    holder: Any = root
    key: Any = 0
    while True:
        value = holder[key]
        if not isinstance(value, list | dict) or not value or rng.random() < 0.1:
            return holder, key
        holder, key = value, rng.choice(sorted(value) if isinstance(value, dict) else range(len(value)))


def _nested(depth: int) -> Any:
    value: Any = "deep"
    for number in range(depth):
        value = [value] if number % 2 else {"a": value}
    return value


def _changed_text(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    made: tuple[Callable[[], bytes], ...] = (
        lambda: b"[" * 200_000,
        lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        lambda: data[:at],
        lambda: b"\xef\xbb\xbf" + data,
        lambda: b"\xff\xfe" + data,
        lambda: data.replace(b"{", b'{"format": 1, "format": 1,', 1),
        lambda: data + b"{}",
        lambda: b"",
        lambda: b"null",
        lambda: b"[]",
        lambda: b"9" * 5000,
        lambda: data.replace(b": 1", b": " + b"1" * 5000, 1),
        lambda: data.replace(b": 1", b": 1e999", 1),
        lambda: data.replace(b": 1", b": NaN", 1),
        lambda: data.replace(b'"', b'"\\ud800', 1),
        lambda: data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
    )
    return rng.choice(made)()
