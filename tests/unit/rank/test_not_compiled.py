"""Functions of ours that dynamo passes over; `test_compiled_program` shows it in a compiled job."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from prismdbg.rank.program import not_compiled


def function() -> int:
    return 3


def test_this_torch_has_the_names() -> None:
    assert not_compiled._SKIPPED is not None


def test_a_torch_without_them_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(not_compiled, "eval_frame", SimpleNamespace())
    assert not_compiled._strategy() is None
    monkeypatch.setattr(not_compiled, "_SKIPPED", None)
    assert not_compiled.not_compiled(function)() == 3
    assert vars(function)["_torchdynamo_disable"] is True
