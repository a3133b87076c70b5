"""The bytes of a rank's log. The native recorder (`rank/native/`) writes the same; both are read by `reader.py`.

A log is a folder of segment files `events.00000.seg`, `events.00001.seg`, ... of fixed size, each allocated
when it is made. All numbers are little-endian. A segment is a 64-byte header and then records:

    u32 size    whole record with this header, a multiple of 8; stored last, so 0 means "no more yet"
    u16 kind    `Kind`
    u16 zero
    body

A record of kind END closes a segment: the next one goes on. Texts and stacks are numbered once per log and
referred to by number; number 0 is the empty text and the empty stack. Of a log that has ended, neighbours may have
been joined into one file, `events.00004-00011.seg`, with the number of the first in its header and a table of where
each begins (`log/joining.py`).

Payload files `payload.00000.seg`, ... hold raw bytes only; COMPLETE records point into them.
"""

from __future__ import annotations

import struct
from enum import IntEnum

MAGIC = b"PRSMLOG1"
VERSION = 1
EVENT_SEGMENT_BYTES = 4 << 20

# magic, version, segment index, rank, pid, wall clock ns and monotonic ns at one instant, segment bytes, zeros
HEADER = struct.Struct("<8sIIiIqqQ16x")
RECORD = struct.Struct("<IHH")
# record_id, created ns, fingerprint, thread, sequence | step, collective, op text, group text, stack, device text (of
# the first tensor: `cpu`, `cuda:0`, or `cuda:0 stream 3` where it is issued on another stream than the default one)
# | root or peer, tag, timeout ms | reduce op, flags, zeros | inputs, outputs (number of tensor entries)
ISSUE = struct.Struct("<QqQQQIIIIIIiiiBBHII")
# dtype number, dimensions, zeros, how many equal tensors in a row; then one i64 per dimension
TENSOR = struct.Struct("<BBHI")
# record_id, completed ns, payload offset, payload bytes, payload segment, source rank, status, flags, how a synthesized
# answer was made up (`model/synthesis.py`), zeros
COMPLETE = struct.Struct("<QqQQIiBBHI")
# with HAS_FINGERPRINT, the fingerprint of what was sent: where a device looks at it, it is known after the issue
COMPLETE_AND_SENT = struct.Struct(COMPLETE.format + "Q")
# record_id, ns at which a thread first began to wait for it, thread
WAIT = struct.Struct("<QqQ")
# step that begins, monotonic ns, source, zeros
STEP = struct.Struct("<IxxxxqB7x")
TEXT = struct.Struct("<II")  # number, bytes; then the bytes of UTF-8
STACK = struct.Struct("<II")  # number, frames; then FRAME each, innermost first
FRAME = struct.Struct("<III")  # file text, line, function text
# rows, any number of: first and last step, ns at which the first collective was issued and the last one ended | how
# many, bytes, ns between issue and completion | stack of the first and of the last, how many sent or received NaN or
# Inf, how many failed, of the first with a payload the number in its step and the segment (-1: none has one)
STEPS = struct.Struct("<IIqqQQQIIIIIi")
SEGMENT = struct.Struct("<Ixxxx")  # its number
# the number of a segment, and where its first record is: how many times 8 bytes from the file's start. Any number of
# them, of segments and places that rise
PART = struct.Struct("<II")

STREAM = " stream "
NO_REDUCE_OP = 255


class Kind(IntEnum):
    TEXT = 1
    STACK = 2
    GROUP = 3  # JSON: name, ranks, desc, backend
    ISSUE = 4
    COMPLETE = 5
    STEP = 6
    NOTE = 7  # JSON: kind, time_ns, and what that kind of note holds; `failed` stands in front of its COMPLETE
    WAIT = 8  # of what does not hold its issuer: an asynchronous collective, a send, a receive; where it is known
    STEPS = 9  # in a summary: rows of what the collectives of a step, or of several, did in one segment
    SEGMENT = 10  # in a summary: what follows is of this segment
    CLOCK = 11  # what the program read from clocks: `clock_reads.py`
    MARK = 12  # in a summary: what a STEP record says, of some of the steps
    PARTS = 13  # the first record of a joined file: where its segments begin
    END = 0xFFFF


class IssueFlag(IntEnum):
    ASYNC = 1
    P2P = 2
    SENT_NONFINITE = 4
    HAS_FINGERPRINT = 8
    HAS_SKETCH = 16  # of what is sent, behind the tensors: `model/sketch.py`


class CompleteFlag(IntEnum):
    PAYLOAD = 1
    RECEIVED_NONFINITE = 2
    SYNTHESIZED = 4  # no real peer took part: what was received is assumed
    HAS_FINGERPRINT = 8  # of what was sent, behind the body
    SENT_NONFINITE = 16


class Status(IntEnum):
    OK = 1
    FAILED = 2


class StepSource(IntEnum):
    OPTIMIZER = 0
    MANUAL = 1
    SKIPPED_BY_SCALER = 2


SPARE = ".spare"  # the suffix of payload files that their rank is about to write over: nobody reads them
SUMMARY = "summary.seg"  # beside the segments: `log/summary.py`


def event_segment(index: int) -> str:
    return f"events.{index:05d}.seg"


def joined_segment(first: int, last: int) -> str:
    return f"events.{first:05d}-{last:05d}.seg"


def payload_segment(index: int) -> str:
    return f"payload.{index:05d}.seg"
