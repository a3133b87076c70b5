"""The bytes of a memory trace. The native tracer (`rank/native/tracer/trace_writer.cpp`) writes them; `memory_reader`
reads.

A trace is a folder. `memory.00000.seg`, `memory.00001.seg`, ... hold records of one fixed size, in the order in which
things happened on all threads; each file is allocated when it is made. All numbers are little-endian. A segment is a
64-byte header and then records; the header's count is stored after them, so a trace can be read while it is written,
after `kill -9`, and after the process was put back to an earlier time. Records are written up to 64 together, with each
collective of a replay and with each block of 1 MiB or more: `kill -9` loses the small ones that came after. A segment
that is full is followed by the next.

`began.json` says how much of what there was at the begin is known: of a program that has run already only what Python
reaches is.

`events.*.seg` give names to the numbers in records. They are a log as `log/format.py` has it, with its TEXT and STACK
records and one kind of our own, SITE. Number 0 is the empty text, the unknown stack, the unknown site.
"""

from __future__ import annotations

import struct
from enum import IntEnum

MAGIC = b"PRSMMEM1"
VERSION = 1
SITE_KIND = 16

# magic, version, segment index, pid, bytes of a record, wall clock ns and monotonic ns at one instant,
# records that fit, records that are there, zeros
HEADER = struct.Struct("<8sIIIIqqQQ8x")
# kind, flags, device, thread | address | size | monotonic ns | step, collective, op, site | block | total:
# what the program's own blocks hold on the record's device after it; of a record without a block, on the CPU.
# Where there is no block the address is a monotonic time: see `Kind`; 0 where that is not known.
RECORD = struct.Struct("<BBHIQQqIIIIQQ")
# number, outermost operator's text, innermost operator's text, module's text, stack, zero
SITE = struct.Struct("<IIIIII")

# from_start: before the program ran; in_use_bytes: of the C library's memory then, null where nobody knows; untraced:
# why memory of GPUs is not traced, absent where it is or there can be none
BEGAN = "began.json"

CPU = 0  # of another device: 1 + its index


def device_name(device: int) -> str:
    """As torch writes it."""
    return "cpu" if device == CPU else f"cuda:{device - 1}"


_INDEX_DIGITS = 4


def device_number(name: str) -> int:
    """Of `cpu`, `cuda:1`, or `cuda` for the first; `ValueError` for other names."""
    if name == "cpu":
        return CPU
    kind, _, index = name.partition(":")
    if kind != "cuda" or not (index or "0").isdecimal() or len(index) > _INDEX_DIGITS:
        raise ValueError(f"{name[:40]!r} is not a device")
    return 1 + int(index or "0")


class Kind(IntEnum):
    ALLOCATION = 1
    FREE = 2
    OPERATOR = 3  # an outermost one begins, on the issuing thread; address: when the one before it there had ended
    BEFORE = 4  # a block that is older than the trace
    ANSWERED = 5  # the collective, or the step's begin, is over for its thread; address: when it was issued
    WAITED = 6  # a wait is over; address: when it began, block: the record number of the collective waited for
    REFUSED = (
        7  # an allocation that a cap on the program's own blocks, or the allocator of the device, did not let through
    )
    RESERVED = 8  # a device's allocator got memory from it (address, size): a segment, or a part that it mapped
    RELEASED = 9  # it gave memory back, which may be a part of what it got


class Flag(IntEnum):
    BACKEND = 1  # made by a communication backend, or by what stands in for it in a replay
    OLD_STACK = 2  # the thread's last known Python stack: it did not hold Python's lock


def segment_name(index: int) -> str:
    return f"memory.{index:05d}.seg"
