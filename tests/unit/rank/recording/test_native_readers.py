"""Libraries that open files in native code tell of them by their calls."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from prismdbg.rank.recording import native_readers

LIBRARY = """
class Tokenizer:
    def __init__(self, name): self.name = name
    from_file = staticmethod(lambda path, *, fast=True: Tokenizer(path))
"""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is told once libraries are watched."""
    found: list[str] = []
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("UntypedStorage.from_file", "from_file"):
        owner = torch.UntypedStorage if "." in name else torch
        monkeypatch.setattr(owner, "from_file", owner.from_file)
    monkeypatch.setattr(
        native_readers, "_READERS", {"native_tokens": ("Tokenizer.from_file", "Gone.from_file", "gone")}
    )
    native_readers.watch(lambda path: found.append(str(path)))
    return found


def test_torchs_own_are_wrapped_at_once(told: list[str], tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(16))
    assert torch.from_file(str(path), size=4).tolist() == [0.0] * 4
    assert torch.UntypedStorage.from_file(str(path), shared=False, nbytes=16).nbytes() == 16
    assert told == [str(path)] * 2


def test_a_librarys_are_wrapped_when_it_is_imported(
    told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "native_tokens.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "native_tokens", ModuleType("native_tokens"))
    del sys.modules["native_tokens"]
    import native_tokens  # type: ignore[import-not-found]

    assert native_tokens.Tokenizer.from_file(tmp_path / "a.json", fast=False).name == tmp_path / "a.json"
    assert native_tokens.Tokenizer("b.json").from_file(path="c.json").name == "c.json"
    assert told == [str(tmp_path / "a.json"), "c.json"]


def test_what_cannot_be_replaced_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("frozen")
    vars(module)["Kind"] = int  # its attributes cannot be set
    native_readers._wrap_all(module, ("Kind.from_bytes",), lambda _: None)
    assert int.from_bytes(b"a") == 97
