"""What an error about a GPU that is not here advises; how many are here is replaced."""

from __future__ import annotations

import pytest
import torch

from prismdbg.rank.program import missing_gpus

WORDS = [
    RuntimeError("CUDA error: invalid device ordinal"),
    AssertionError("Invalid device id"),
    ValueError("device_id cuda:5 is out of range. Please use a device index less than"),
]


@pytest.mark.parametrize("error", WORDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(("here", "notes"), [(1, 2), (6, 0), (0, 0)])
def test_only_a_device_that_the_node_of_the_job_had_is_explained(
    error: Exception, here: int, notes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any GPU, torch's own words say enough."""
    monkeypatch.setenv("LOCAL_RANK", "5")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: here)
    raised = type(error)(*error.args)
    missing_gpus.advise(raised, "use {gpus} of {needed}")
    found = getattr(raised, "__notes__", [])
    assert len(found) == notes and found[1:] == ["try: use 1 of 6"][:notes]


def test_another_error_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "5")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    error = ValueError("no data")
    missing_gpus.advise(error, "")
    assert not hasattr(error, "__notes__")
