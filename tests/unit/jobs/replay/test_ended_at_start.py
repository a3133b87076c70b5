"""A replayed rank that ends before its agent answers: the error says what it printed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from counting import short_folder

from prismdbg.errors import RankLost
from prismdbg.jobs.replay.replay import connect
from prismdbg.jobs.replay.replay_plan import Plan
from prismdbg.runtime.rank_folder import RankFolder
from prismdbg.runtime.runtime import RunningRank
from prismdbg.runtime.spec import OUTPUT

BEFORE_STATE = "the program ended before it had its state"


@pytest.fixture
def own() -> Iterator[RankFolder]:
    with short_folder() as home, RankFolder(home / "rank") as folder:
        yield folder


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("", "; it printed nothing"),
        ("old\n\nImportError: no torch\n", "; its last output:\nold\nImportError: no torch"),
    ],
)
def test_what_it_printed_is_in_the_error_and_the_hint_is_advice(own: RankFolder, printed: str, said: str) -> None:
    (own.path / OUTPUT).write_text(printed)
    ended = SimpleNamespace(exit_code=lambda: 1, require_within_limits=lambda: None)
    for awaits_state, what in ((False, "the rank ended before its agent answered"), (True, BEFORE_STATE)):
        plan = SimpleNamespace(own=own, agent="agent", awaits_restore_point=awaits_state)
        with pytest.raises(RankLost) as lost:
            connect(cast(Plan, plan), cast(RunningRank, ended))
        assert str(lost.value) == f"{what}, with exit code 1{said}"
    assert lost.value.hint.startswith("run `prismdbg verify`")
