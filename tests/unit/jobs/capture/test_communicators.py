"""A rank with an NCCL communicator cannot be saved, and is not asked to stand still for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismdbg.capsule.log import format as fmt
from prismdbg.checkpoint import choice
from prismdbg.errors import CheckpointError
from prismdbg.jobs.capture.capture import take_image
from prismdbg.jobs.capture.communicators import no_checkpoint, require_saveable
from tests.tiny_log import TinyLog


def a_rank(folder: Path, backend: str) -> Path:
    folder.mkdir()
    body = {"name": "0", "ranks": [0, 1], "desc": "default_pg", "backend": backend}
    TinyLog(folder).append(fmt.Kind.GROUP, json.dumps(body).encode())
    return folder


def test_a_rank_with_nccl_is_not_asked_to_stand_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find", lambda: None)
    folder = a_rank(tmp_path / "3", "nccl")
    with pytest.raises(CheckpointError, match="rank 3 cannot be checkpointed: it has an NCCL communicator") as refused:
        take_image(folder, tmp_path / "images", lambda line: pytest.fail(line))
    assert "--origin state" in str(refused.value.hint) and "--origin start" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("backend", "why"),
    [
        ("gloo", ""),
        ("", ""),
        ("cuda:nccl", "it has an NCCL communicator"),
        ("cpu:gloo,cuda:nccl", "its group world (cpu:gloo,cuda:nccl) may have an NCCL communicator"),
    ],
)
def test_it_is_the_backend_that_decides(tmp_path: Path, backend: str, why: str) -> None:
    """Of a group with two backends it is not known whether that of GPUs is in use: it was said that it is."""
    folder = a_rank(tmp_path / "0", backend)
    assert no_checkpoint(folder) == why
    if not why:
        require_saveable(folder)
