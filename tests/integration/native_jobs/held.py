"""What is written with Python's lock held: where a segment is full, other threads run while the next one is had."""

from __future__ import annotations

import sys
import threading
import time

import rank
from rank import FOLDER, native

RECORD = b'{"kind": "x", "time_ns": 1, "text": "' + b"x" * 1000 + b'"}'

rank.record(event_segment_bytes=1 << 20)
sys.setswitchinterval(1000)  # Python gives the lock to nobody by itself
count, is_over = [0], [False]


def other() -> None:
    while not is_over[0]:
        count[0] += 1
        time.sleep(0)


thread = threading.Thread(target=other)
thread.start()
time.sleep(0.1)
let_go = 0
for _ in range(30_000):
    before = count[0]
    native.append_held(7, RECORD)
    let_go += count[0] != before
is_over[0] = True
thread.join()
segments = len(list(FOLDER.glob("events.*.seg")))
assert segments > 25 and 0 < let_go <= segments, (segments, let_go)
