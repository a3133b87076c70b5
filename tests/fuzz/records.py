"""Changes of logs, memory traces and other binary files: whole records, single fields, single bits."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from prismdbg.capsule import memory_format
from prismdbg.capsule.log import format as fmt
from tests.fuzz.values import changed_json

_SIZES = (1, 2, 4, 8)
_MOST_COPIES = 3000
_MOST_TRACE_RECORDS = 100_000
# Device, thread, address, size, time, site, by their place in a record, and beyond what numbers they cannot go.
_TRACE_FIELDS = ((2, 129), (3, 1 << 32), (4, 1 << 64), (5, 1 << 64), (6, 1 << 63), (10, 1 << 32))
Record = tuple[int, bytes]


def interesting(size: int, rng: Random) -> bytes:
    bits = 8 * size
    values = (
        0,
        1,
        2,
        3,
        64,
        255,
        65535,
        65536,
        2**bits - 1,
        2 ** (bits - 1),
        2 ** (bits - 1) - 1,
        rng.getrandbits(bits),
    )
    return (rng.choice(values) & (2**bits - 1)).to_bytes(size, "little")


def overwritten(data: bytes, rng: Random, first: int = 0, beyond: int | None = None) -> bytes:
    """One aligned number between the two places is another."""
    size = rng.choice(_SIZES)
    end = len(data) if beyond is None else min(beyond, len(data))
    if end - first < size:
        return data
    at = first + rng.randrange((end - first) // size) * size
    return data[:at] + interesting(size, rng) + data[at + size :]


def changed_bytes(data: bytes, rng: Random) -> bytes:
    """Of a file whose format is not known here."""
    at = rng.randrange(len(data) + 1)
    made: tuple[Callable[[], bytes], ...] = (
        lambda: overwritten(data, rng),
        lambda: overwritten(data, rng, 0, 128),
        lambda: data[:at],
        lambda: data + rng.randbytes(rng.choice((1, 64, 4096))),
        lambda: b"",
        lambda: data[:at] + data[at + rng.randrange(64) :],
        lambda: _flipped(data, rng),
    )
    return rng.choice(made)()


def changed_log(data: bytes, rng: Random) -> bytes:
    choice = rng.random()
    if choice < 0.1:
        return overwritten(data, rng, 0, fmt.HEADER.size)
    if choice < 0.2:
        return changed_bytes(data, rng)
    header, records, rest = _parsed(data)
    if not records:
        return changed_bytes(data, rng)
    for _ in range(rng.choice((1, 1, 2, 5))):
        _change_records(records, rng)
    return header + b"".join(_packed(*record) for record in records) + bytes(min(rest, 1 << 12))


def changed_trace(data: bytes, rng: Random) -> bytes:
    """Of `memory.*.seg`: its header, numbers in its records, or very many records."""
    choice = rng.random()
    if choice < 0.25:
        return overwritten(data, rng, 0, memory_format.HEADER.size)
    if choice < 0.4:
        return changed_bytes(data, rng)
    if choice < 0.6:
        return _multiplied(data, rng)
    for _ in range(rng.choice((1, 3, 20))):
        data = overwritten(data, rng, memory_format.HEADER.size)
    return data


def _multiplied(data: bytes, rng: Random) -> bytes:
    """One record very often, as any kind, each time with one number a little larger; the header says as many."""
    head, record = memory_format.HEADER, memory_format.RECORD
    *told, count = head.unpack_from(data)
    beyond_last = head.size + count * record.size
    values = list(record.unpack_from(data, head.size + rng.randrange(count) * record.size))
    values[0] = rng.choice((values[0], *memory_format.Kind))
    field, beyond = rng.choice(_TRACE_FIELDS)
    by = rng.choice((0, 1, 4096, 1 << 30))
    many = []
    for number in range(rng.choice((100, 3000, _MOST_TRACE_RECORDS))):
        values[field] = (values[field] + by * (number > 0)) % beyond
        many.append(record.pack(*values))
    at = head.size + rng.randrange(count + 1) * record.size
    told[-1] = count + len(many)
    header = head.pack(*told, count + len(many))
    return header + data[head.size : at] + b"".join(many) + data[at:beyond_last]


def _change_records(records: list[Record], rng: Random) -> None:
    at = rng.randrange(len(records))
    kind, body = records[at]
    choice = rng.random()
    if kind in (fmt.Kind.GROUP, fmt.Kind.NOTE) and choice < 0.7:
        records[at] = kind, changed_json(body.rstrip(b"\0"), rng)
    elif choice < 0.55:
        records[at] = kind, overwritten(body, rng)
    elif choice < 0.62:
        records[at] = rng.choice((*range(18), fmt.Kind.END, 65534)), body
    elif choice < 0.7:
        del records[at]
    elif choice < 0.76:
        other = rng.randrange(len(records))
        records[at], records[other] = records[other], records[at]
    elif choice < 0.82:
        records[at] = kind, body[: rng.randrange(len(body) + 1)]
    elif choice < 0.9:
        records[at:at] = [(kind, overwritten(body, rng)) for _ in range(rng.choice((1, 2, 30)))]
    elif kind == fmt.Kind.ISSUE:
        records[at:at] = [_many_tensors(body, rng, number) for number in range(rng.choice((1, 100, _MOST_COPIES)))]
    else:
        records[at:at] = [(kind, body)] * rng.choice((1, 100, _MOST_COPIES))


def _many_tensors(body: bytes, rng: Random, number: int) -> Record:
    """One collective that says it has far more tensors than its record has room for."""
    repeat = rng.choice((65_535, 65_536, 1 << 20, 2**32 - 1))
    head = fmt.ISSUE.unpack_from(body.ljust(fmt.ISSUE.size, b"\0"))
    tensor = fmt.TENSOR.pack(6, 1, 0, repeat) + number.to_bytes(8, "little")
    return fmt.Kind.ISSUE, fmt.ISSUE.pack(number, *head[1:17], 1, 1) + tensor * 2


def _parsed(data: bytes) -> tuple[bytes, list[Record], int]:
    records: list[Record] = []
    offset = fmt.HEADER.size
    while offset + fmt.RECORD.size <= len(data):
        size, kind, _ = fmt.RECORD.unpack_from(data, offset)
        if size < fmt.RECORD.size or offset + size > len(data):
            break
        records.append((kind, data[offset + fmt.RECORD.size : offset + size]))
        offset += size
    return data[: fmt.HEADER.size], records, len(data) - offset


def _packed(kind: int, body: bytes) -> bytes:
    size = (fmt.RECORD.size + len(body) + 7) & ~7
    return (fmt.RECORD.pack(size, kind, 0) + body).ljust(size, b"\0")


def _flipped(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 8, 100)) if data else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)
