"""Where what repeats in each step is cut so that it looks the same in each."""

from __future__ import annotations

import pytest

from prismdbg.model.step_parts import step_parts


@pytest.mark.parametrize("most", range(1, 120))
@pytest.mark.parametrize("jitter", [0, 2])
def test_a_part_of_a_step_is_at_the_same_place_in_each(most: int, jitter: int) -> None:
    """The most of each part of steps that are alike, with a few events more or less."""
    begins = [step * 100 + step % 2 * jitter for step in range(23)]
    found = step_parts(begins, 2300, most)
    assert 0 < len(found) <= most and found[0] == 0 and found == sorted(set(found))
    if most <= 23:
        assert set(found) <= set(begins), "whole steps"
        return
    each = most // 23
    by_step = [sorted(part - begin for part in found if begin <= part < begin + 98) for begin in begins]
    assert {len(parts) for parts in by_step} == {each}
    assert all(max(same) - min(same) <= 2 * jitter for same in zip(*by_step, strict=True))


@pytest.mark.parametrize("most", [1, 2, 3, 20, 50])
@pytest.mark.parametrize("begins", [[0], [0, 9000, 9010, 9020], [5], [], [0, 1, 2, 3, 9999], list(range(0, 9000, 3))])
def test_uneven_steps_have_as_many_parts_as_there_is_room_for(begins: list[int], most: int) -> None:
    found = step_parts(begins, 10_000, most)
    assert 0 < len(found) <= most and found[0] == 0 and found == sorted(set(found))
    assert all(part < 10_000 for part in found)


def test_few_places_are_a_part_each() -> None:
    assert step_parts([0, 2], 4, 10) == [0, 1, 2, 3]
