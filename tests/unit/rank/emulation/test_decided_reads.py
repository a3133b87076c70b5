"""Who reads a value out of a tensor: the program and the packages that it uses, or torch for itself."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest
import torch

from prismdbg.rank.emulation.reads import Reads

TORCH = Path(torch.__file__).parent


def decisions_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Of a file there, whose second line decides by what it reads."""
    source = "def decides(tensor):\n    if tensor.item() > 1.0:\n        return True\n"
    monkeypatch.setitem(linecache.cache, str(path), (len(source), None, source.splitlines(True), str(path)))
    monkeypatch.setattr(torch.Tensor, "item", torch.Tensor.item)
    reads = Reads(lambda: True)
    torch.Tensor.item = reads._noted(torch.Tensor.item)  # type: ignore[method-assign]
    names: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), names)
    assert names["decides"](torch.tensor(2.0))
    return reads.decisions()


@pytest.mark.parametrize("package", ["torchtitan", "torch_xla"])
def test_packages_beside_torch_decide_as_the_program_does(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = decisions_of(TORCH.with_name(package) / "train.py", monkeypatch)
    assert found["count"] == 1


@pytest.mark.parametrize(("name", "count"), [("optim/adam.py", 0), ("amp/grad_scaler.py", 1)])
def test_of_torch_only_the_scaler_decides(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(decisions_of(TORCH / name, monkeypatch)) == count
