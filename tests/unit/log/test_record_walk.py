"""The walk from many places at once finds what the walk record by record finds, also where data look like records."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from prismdbg.capsule.log import format as fmt
from prismdbg.errors import CapsuleError
from prismdbg.log import record_walk
from prismdbg.log.log_parts import MAX_SEGMENT_BYTES, whole_file
from prismdbg.log.record_walk import LEAST_WORDS, walk


def segment(seed: int, words: int, *, misleading: bool) -> tuple[np.ndarray, list[int], int]:  # type: ignore[type-arg]
    """A segment of random records, the slot of each, and the first slot after them."""
    random = np.random.default_rng(seed)
    body = random.integers(0, 1 << 20, words).astype(np.uint64)
    if misleading:  # every word of every body is the head of a short record
        body[:] = 24 | int(fmt.Kind.COMPLETE) << 32
    slots, at = [], 8
    while at + 200 < words * 3 // 4:
        size = int(random.integers(2, 40))
        body[at] = size * 8 | int(random.integers(1, 8)) << 32
        slots.append(at)
        at += size
    body[at:] = 0
    return body, slots, at


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("misleading", [False, True])
def test_what_it_finds_is_so(seed: int, misleading: bool) -> None:
    words, slots, end = segment(seed, 4 * LEAST_WORDS, misleading=misleading)
    found, after = walk(words, 8)
    assert found.tolist() == slots[: len(found)], "nothing that is none, and none left out"
    assert after == (slots[len(found)] if len(found) < len(slots) else end)
    if not misleading:
        assert after == end


@pytest.mark.parametrize("seed", range(8))
def test_places_that_look_like_records_do_not_end_it(seed: int) -> None:
    """In every tenth record the data look like records. Who starts there starts again where the one before came to."""
    words, slots, end = segment(seed, 16 * LEAST_WORDS, misleading=False)
    for slot, following in zip(slots[::10], slots[1::10], strict=False):
        words[slot + 1 : following] = 24 | int(fmt.Kind.COMPLETE) << 32
    found, after = walk(words, 8)
    assert found.tolist() == slots and after == end


@pytest.mark.parametrize("head", [None, 13, 0, 5, int(fmt.Kind.COMPLETE) << 32, 24, 24 | 99 << 32, (1 << 20) | 3 << 32])
def test_one_lane_walks_as_all_do(head: int | None) -> None:
    """Few lanes that walk again do so one by one, which takes a hundredth of the time. `head`: of a damaged record."""
    words, slots, _ = segment(3, 4 * LEAST_WORDS, misleading=False)
    if head is not None:
        words[slots[700]] = head
    words = words[: slots[-1] + 1]  # the last one is cut off
    limit = slots[-1] + 1
    starts = np.array([slots[0], slots[1] + 1, slots[650], slots[-1], limit], dtype=np.int64)
    found, ends = record_walk._in_step(words, starts, np.full(len(starts), limit))
    for lane, start in enumerate(starts.tolist()):
        alone, end = record_walk._one_lane(words, start, limit)
        assert alone.tolist() == [slot for slot in found[lane].tolist() if slot >= 0]
        assert end == ends[lane]


def test_a_record_that_is_cut_off_is_none() -> None:
    words, slots, _ = segment(2, 4 * LEAST_WORDS, misleading=False)
    found, after = walk(words[: slots[-1] + 1], 8)
    assert found.tolist() == slots[:-1] and after == slots[-1]


@pytest.mark.parametrize("damage", [13, 0, int(fmt.Kind.COMPLETE) << 32, 24, 24 | 99 << 32, (1 << 20) | 3 << 32])
def test_it_stops_where_the_log_is_damaged(damage: int) -> None:
    """By an odd size, by none, also of a record with a kind, by no kind, an impossible one, or a size beyond all."""
    words, slots, _ = segment(1, 4 * LEAST_WORDS, misleading=False)
    words[slots[700]] = damage
    found, after = walk(words, 8)
    assert found.tolist() == slots[: len(found)] and after == slots[len(found)] and len(found) <= 700


def test_a_short_segment_is_left_to_who_asks() -> None:
    found, after = walk(np.zeros(100, dtype=np.uint64), 8)
    assert len(found) == 0 and after == 8


def test_a_segment_with_a_hole_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "events.00000.seg"
    path.touch()
    os.truncate(path, MAX_SEGMENT_BYTES + 8)
    with pytest.raises(CapsuleError, match="no segment has more than 128 MiB"):
        whole_file(path).words()
