"""Before an emulated rank's interpreter ends, gloo's threads are waited for until they have been quiet for a while."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from prismdbg.rank.emulation import real_groups
from prismdbg.rank.emulation.real_groups import QUIET_LOOKS, RealGroups


@pytest.mark.parametrize(("looks", "needed"), [([], QUIET_LOOKS), ([True, False, True], 3 + QUIET_LOOKS)])
def test_one_that_works_again_is_waited_for_again(
    looks: list[bool], needed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    told: Iterator[bool] = iter(looks)

    def runs() -> bool:
        seen.append(next(told, False))
        return seen[-1]

    monkeypatch.setattr(real_groups, "_runs_gloo", runs)
    monkeypatch.setattr(real_groups, "LOOK_S", 0.0)
    RealGroups.settle(cast(Any, None))
    assert len(seen) == needed
