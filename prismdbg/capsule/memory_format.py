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
# what the program's own blocks hold after this record.
# Where there is no block the address is a monotonic time: see `Kind`; 0 where that is not known.
RECORD = struct.Struct("<BBHIQQqIIIIQQ")
# number, outermost operator's text, innermost operator's text, module's text, stack, zero
SITE = struct.Struct("<IIIIII")

# from_start: before the program ran; in_use_bytes: of the C library's memory then, null where nobody knows
BEGAN = "began.json"

CPU = 0  # of another device: 1 + its index


class Kind(IntEnum):
    ALLOCATION = 1
    FREE = 2
    OPERATOR = 3  # an outermost one begins, on the issuing thread; address: when the one before it there had ended
    BEFORE = 4  # a block that is older than the trace
    ANSWERED = 5  # the collective, or the step's begin, is over for its thread; address: when it was issued
    WAITED = 6  # a wait is over; address: when it began, block: the record number of the collective waited for
    REFUSED = 7  # an allocation that a cap on the program's own blocks did not let through


class Flag(IntEnum):
    BACKEND = 1  # made by a communication backend, or by what stands in for it in a replay
    OLD_STACK = 2  # the thread's last known Python stack: it did not hold Python's lock


def segment_name(index: int) -> str:
    return f"memory.{index:05d}.seg"
