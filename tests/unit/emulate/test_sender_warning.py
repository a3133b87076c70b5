"""Said before thousands of ranks run for their values: once, with how many and how long."""

from __future__ import annotations

from prismdbg.emulate.sender_warning import FEW, SenderWarning
from prismdbg.settings.missing_value import MissingValue
from prismdbg.simulate.graph.mesh import Mesh


def lacks(source: int, axis: str = "world", where: str = "train.py:7 in save") -> MissingValue:
    return MissingValue(
        rank=617, source=source, key=str(source), collective="broadcast", axis=axis, identity="#1", where=where
    )


def said(mesh: str, axis: str, senders: int) -> list[str]:
    warning = SenderWarning(Mesh.parse(mesh))
    return [warning.started(lacks(source, axis), {0: 4.0, 1: 6.0}) for source in range(senders)]


def test_of_many_senders_at_one_line_it_is_said_once_what_they_take() -> None:
    texts = said("dp=1024,tp=8", "world", 10)
    assert [bool(text) for text in texts] == [False] * FEW + [True] + [False] * (9 - FEW)
    assert "up to 8,191 of them run, one after another, about 5 s each and 11 h together" in texts[FEW]
    assert "at train.py:7 in save" in texts[FEW]


def test_the_members_of_the_group_are_the_most() -> None:
    assert "up to 7 of them" in said("dp=1024,tp=8", "tp", FEW + 1)[-1]


def test_nothing_is_said_where_all_have_run_or_each_line_needs_its_own() -> None:
    assert not any(said("dp=2,tp=2", "world", 3))
    warning = SenderWarning(Mesh.parse("dp=64"))
    assert not any(warning.started(lacks(n, where=f"train.py:{n}"), {}) for n in range(20))
