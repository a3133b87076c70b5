"""Values people write on the command line, for `type=` of an option: sizes, durations, moments, ranks."""

from __future__ import annotations

import math

from prismdbg.capsule.memory_format import device_number
from prismdbg.cli.click_errors import WrongValue
from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment
from prismdbg.model.sizes import parse_size

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
SHORTEST_PERIOD_NS, LONGEST_PERIOD_NS = 10_000_000, 60_000_000_000
_LONGEST_S = 366 * 24 * 3600.0
LARGEST_WORLD = 1 << 24
MOST_NAMED = 1 << 16


def size(text: str) -> int:
    """Bytes: `4GiB`, `80GB` (10^9 each), `512M` (MiB), `1000`."""
    try:
        return parse_size(str(text))
    except ValueError as error:
        hint = "write 512MiB (2^20 bytes each) or 80GB (10^9 bytes each)"
        raise WrongValue(str(error), hint=hint) from error


def seconds(text: str | float) -> float:
    """`30`, `30s`, `2m`, `1h`: finite, above zero, at most a year. The system takes no longer waits."""
    given = str(text).strip()
    unit = _SECONDS.get(given[-1:], 0.0)
    try:
        value = float(given[:-1]) * unit if unit else float(given)
    except ValueError:
        value = math.nan
    if not 0 < value <= _LONGEST_S:  # false for nan, too
        raise WrongValue(f"{given!r} is not a duration", hint="write 600, 30s, 10m or 1h")
    return value


def period(text: str) -> int:
    """Nanoseconds: `50ms`, `1s`, `0.5s`; from 10 ms to a minute."""
    given = str(text).strip()
    unit_ns = 1_000_000 if given.endswith("ms") else 1_000_000_000 if given.endswith("s") else 0
    try:
        value = float(given.removesuffix("s").removesuffix("m")) * unit_ns
    except ValueError:
        value = math.nan
    if not SHORTEST_PERIOD_NS <= value <= LONGEST_PERIOD_NS:  # false for nan, too
        raise WrongValue(f"{given!r} is not a period from 10ms to 60s", hint="write 50ms or 1s")
    return round(value)


def device(text: str | int) -> int:
    """The number that a memory trace has for `cpu` or `cuda:1`."""
    try:
        return device_number(str(text))
    except ValueError as error:
        raise WrongValue(str(error), hint="write cpu, cuda:0, cuda:1 ...") from error


def share(text: str | float) -> float:
    """`1%` or `0.01`: above zero, at most all."""
    given = str(text).strip()
    try:
        value = float(given.removesuffix("%")) / (100.0 if given.endswith("%") else 1.0)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise WrongValue(f"{given!r} is not a share", hint="write 1% or 0.01")
    return value


def moment(text: str) -> Moment:
    """`12.345.6`, `12.345` or `12`."""
    try:
        return Moment.parse(str(text))
    except UsageError as error:
        raise WrongValue(str(error), hint=error.hint) from error


def ranks(text: str) -> tuple[int, ...]:
    """`0,2` or `0-3`: at least one, each once, in order."""
    given = str(text)
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in given.split(","))):
        first, dash, last = (word.strip() for word in part.partition("-"))
        if not _is_rank(first) or (dash and not _is_rank(last)):
            raise WrongValue(f"{given!r} is not a list of ranks", hint="write 0,2 or 0-3")
        if int(last or first) < int(first):
            raise WrongValue(f"{part!r} is in descending order", hint=f"write {last}-{first}")
        if int(last or first) - int(first) >= MOST_NAMED:
            raise WrongValue(f"{part!r} names more than {MOST_NAMED:,} ranks", hint="list fewer")
        found.update(range(int(first), int(last or first) + 1))
    if not found:
        raise WrongValue(f"{given!r} contains no rank", hint="write 0,2 or 0-3, or leave the option out")
    return tuple(sorted(found))


def _is_rank(text: str) -> bool:
    """One that a world may have, so that a slip of the keyboard fills no memory."""
    return text.isascii() and text.isdecimal() and len(text) < 9 and int(text) < LARGEST_WORLD
