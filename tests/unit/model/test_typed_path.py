"""Paths as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.model.typed_path import typed_path


def test_homes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert typed_path("~/x.npy") == Path("/home/me/x.npy")
    assert typed_path("~nobody-of-this-name/x.npy") == Path("~nobody-of-this-name/x.npy")
    assert typed_path("a/~b") == Path("a/~b")
