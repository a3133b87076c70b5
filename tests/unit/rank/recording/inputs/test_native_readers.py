"""Libraries that open files in native code tell of them by their calls."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from prismdbg.rank.recording.inputs import native_readers

LIBRARY = """
class Tokenizer:
    def __init__(self, name): self.name = name
    from_file = staticmethod(lambda path, *, fast=True: Tokenizer(path))
    @classmethod
    def from_files(cls, *paths): return cls(paths)
class Base:
    pass
"""
NAMES = ("Tokenizer.from_file", "Tokenizer.from_files", "Base", "Gone.from_file", "gone")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is told once libraries are watched."""
    found: list[str] = []
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("UntypedStorage.from_file", "from_file"):
        owner = torch.UntypedStorage if "." in name else torch
        monkeypatch.setattr(owner, "from_file", owner.from_file)
    monkeypatch.setattr(native_readers, "_READERS", {"native_tokens": NAMES})
    native_readers.watch(lambda path: found.append(str(path)))
    return found


def test_torchs_own_are_wrapped_at_once(told: list[str], tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(16))
    assert torch.from_file(str(path), size=4).tolist() == [0.0] * 4
    assert torch.UntypedStorage.from_file(str(path), shared=False, nbytes=16).nbytes() == 16
    assert told == [str(path)] * 2
    torch.from_file(str(path), shared=True, size=4)
    torch.UntypedStorage.from_file(str(path), True, 16)
    assert len(told) == 2, "what is written through it is no input"


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
    (tmp_path / "e").touch()
    other = str(tmp_path / "e")
    assert native_tokens.Tokenizer("b.json").from_files("d", [other]).name == ("d", [other])
    assert told[2:] == ["d", other]

    class Own(native_tokens.Base):  # type: ignore[misc]
        pass

    assert isinstance(Own(), native_tokens.Base), "a type that programs may build on stays what it is"


def test_a_type_that_is_none_of_a_base_is_still_a_type() -> None:
    """As `safe_open`: programs ask what is one of it, and name it in annotations."""
    told: list[object] = []
    module = ModuleType("closed")
    vars(module)["closed"] = slice  # it stands for one of a library's
    native_readers._wrap_all(module, ("closed",), told.append)
    closed = module.closed
    assert closed is not slice and closed("weights", 2) == slice("weights", 2) and told == ["weights"]
    assert isinstance(slice(1), closed) and not isinstance(1, closed) and closed.indices is slice.indices
    assert isinstance(None, closed | None) and closed.__name__ == "slice"


def test_what_cannot_be_replaced_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("frozen")
    vars(module)["Kind"] = int  # its attributes cannot be set
    native_readers._wrap_all(module, ("Kind.from_bytes",), lambda _: None)
    assert int.from_bytes(b"a") == 97


def test_only_what_is_read_may_be_a_folder_or_a_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "schema").touch()
    told: list[object] = []
    module = ModuleType("tables")
    module.read = lambda *args, **named: None  # type: ignore[attr-defined]
    native_readers._wrap_all(module, ("read",), told.append)
    module.read(object(), "*.csv", "data", columns=["data"], null="*", schema="schema", long="x" * 5000)
    assert told == ["*.csv", "schema"]
    module.read(source=["data", "b"], columns="*")
    assert told[2:] == ["data", "b"]


def test_names_that_are_no_files_are_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table may have thousands of columns, and its folder a server."""
    monkeypatch.setattr(native_readers, "_no_files", set())
    asked: list[str] = []
    monkeypatch.setattr(native_readers.os.path, "isfile", lambda path: bool(asked.append(path)))
    module = ModuleType("tables")
    module.read = lambda *args, **named: None  # type: ignore[attr-defined]
    native_readers._wrap_all(module, ("read",), lambda _: None)
    for _ in range(3):
        module.read("a.csv", columns=["x", "y"])
    assert asked == ["x", "y"]


def test_what_fails_in_ours_is_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("tables")
    module.read = lambda *args, **named: 7  # type: ignore[attr-defined]
    native_readers._wrap_all(module, ("read",), lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    assert module.read("a.csv") == 7
