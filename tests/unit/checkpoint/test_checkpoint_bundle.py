"""Which CRIU is taken: the newest that works, and a reason for each that is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismdbg.checkpoint import bundle, selftest
from prismdbg.errors import FacilityError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PRISMDBG_CACHE", str(tmp_path))
    monkeypatch.delenv("PRISMDBG_CRIU", raising=False)
    monkeypatch.setattr(bundle.shutil, "which", lambda name: None)
    monkeypatch.setattr(selftest, "failure", lambda command, memory: "")
    return tmp_path


def make(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "criu").touch()
    facts = {"version": version, "loader": "lib/ld.so", "program": "bin/criu", "libraries": "lib", "bindings": "python"}
    (folder / "bundle.json").write_text(json.dumps(facts))
    return folder


def test_the_newest_in_the_cache_is_taken(cache: Path) -> None:
    for version in ("4.2.1", "4.10", "4.9"):
        make(cache / "criu" / version, version)
    criu = bundle.find()
    assert criu.version == "4.10"
    at = criu.folder
    assert criu.command() == (f"{at}/lib/ld.so", "--inhibit-cache", "--library-path", f"{at}/lib", f"{at}/bin/criu")
    assert criu.command(Path("/in"))[0] == "/in/lib/ld.so"


def test_one_that_fails_its_self_test_is_passed_over(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(cache / "criu" / "5.0", "5.0")
    make(cache / "criu" / "4.2.1", "4.2.1")
    monkeypatch.setattr(selftest, "failure", lambda command, memory: "it fails" if "5.0" in command[0] else "")
    assert bundle.find().version == "4.2.1"


def test_every_refusal_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(cache / "criu" / "4.1.1", "4.1.1")
    make(cache / "criu" / "4.3", "4.3")
    monkeypatch.setattr(selftest, "failure", lambda command, memory: "the self-test's dump failed: no")
    with pytest.raises(
        FacilityError, match=r"4\.3: the self-test's dump failed: no; CRIU 4\.1\.1 is older than 4\.2"
    ) as caught:
        bundle.find()
    assert "images/criu/build" in caught.value.hint


def test_none_at_all(cache: Path) -> None:
    with pytest.raises(FacilityError, match="none is installed"):
        bundle.find()


def test_a_named_one_is_the_only_candidate(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(cache / "criu" / "4.2.1", "4.2.1")
    monkeypatch.setenv("PRISMDBG_CRIU", str(make(tmp_path / "mine", "4.5")))
    assert bundle.find().version == "4.5"
    monkeypatch.setenv("PRISMDBG_CRIU", str(tmp_path / "nothing"))
    with pytest.raises(FacilityError, match="not a bundle"):
        bundle.find()


def test_the_self_test_is_remembered_per_binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "criu"
    program.write_text("one")
    tried: list[str] = []
    monkeypatch.setattr(selftest.os, "geteuid", lambda: 0)
    monkeypatch.setattr(selftest, "_try", lambda command: tried.append(command[-1]) or "a reason")
    memory = tmp_path / "memory" / "selftest.json"
    assert selftest.failure([str(program)], memory) == selftest.failure([str(program)], memory) == "a reason"
    assert len(tried) == 1
    program.write_text("another one")
    selftest.failure([str(program)], memory)
    assert len(tried) == 2
    memory.write_text("not json")
    selftest.failure([str(program)], memory)
    assert len(tried) == 3


def test_without_root_nothing_is_tried_or_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest.os, "geteuid", lambda: 1000)
    assert "root" in selftest.failure(["/bin/criu"], tmp_path / "memory")
    assert not (tmp_path / "memory").exists()


def test_what_a_build_that_was_killed_has_left_goes_with_the_next_one(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = cache / "criu" / ".building.partial-removed-1"
    (left / "made.12345678").mkdir(parents=True)
    ready = make(tmp_path / "ready", "5.0")
    script = tmp_path / "scripts" / "build"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\ntest ! -e "$1" && cp -r {ready} "$1"\n')
    script.chmod(0o755)
    monkeypatch.setattr(bundle, "shipped", lambda _: script.parent)
    for _ in range(2):  # another command may have built the same one
        assert bundle._build_in_cache().folder == (cache / "criu" / "5.0").resolve()
    script.write_text('#!/bin/sh\nmkdir -p "$1.12345678"\necho no mirror\nexit 1\n')
    with pytest.raises(FacilityError, match="no mirror"):
        bundle._build_in_cache()
    assert [path.name for path in (cache / "criu").iterdir()] == ["5.0"]
