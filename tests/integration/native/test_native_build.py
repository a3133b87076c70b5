"""The native library: built once for each torch, Python and source; loaded, never compiled, inside a job."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from native_ranks import Spawn, run_job

from prismdbg.errors import FacilityError
from prismdbg.jobs.injection import cache_dir
from prismdbg.model.ops import OPS
from prismdbg.rank.native import build as native_build
from prismdbg.rank.native import cuda_headers


def test_what_was_not_built_is_not_found_and_says_why(tmp_path: Path) -> None:
    path, reason = native_build.find(tmp_path)
    assert path is None
    assert torch.__version__ in reason and "make setup" in reason
    assert native_build.load(tmp_path) is None


def test_a_build_is_found_and_not_made_again() -> None:
    built = native_build.build(cache_dir())
    made = built.stat().st_mtime_ns
    assert native_build.find(cache_dir()) == (built, "")
    assert native_build.build(cache_dir()).stat().st_mtime_ns == made


def test_the_key_names_torch_and_knows_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = native_build.key()
    assert torch.__version__ in before
    sources = native_build.SOURCES
    for source in filter(Path.is_file, sources.rglob("*.[ch]*")):
        copy = tmp_path / source.relative_to(sources)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(source.read_bytes())
    monkeypatch.setattr(native_build, "SOURCES", tmp_path)
    assert native_build.key() == before
    (tmp_path / "kernel.cpp").write_text("other")
    assert native_build.key() != before


def test_without_a_compiler_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FacilityError, match="compiler"):
        native_build.build(tmp_path)


def test_a_source_that_does_not_compile_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "broken.cpp").write_text("int broken( {\n")
    monkeypatch.setattr(native_build, "SOURCES", sources)
    with pytest.raises(FacilityError, match="error"):
        native_build.build(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [sources / "broken.cpp"]


def test_what_a_killed_build_of_other_sources_left_goes_with_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "small.cpp").write_text("int small() { return 1; }\n")
    monkeypatch.setattr(native_build, "SOURCES", sources)
    cache = tmp_path / "cache"
    (cache / "native" / ".build.partial-killed").mkdir(parents=True)
    (cache / "native" / ".build.partial-killed" / "unit.o").touch()
    built = native_build.build(cache)
    assert [path for path in cache.rglob("*") if path.is_file()] == [built]
    assert list((cache / "native").iterdir()) == [built.parent]


def test_the_table_of_operators_is_the_one_of_the_model() -> None:
    """One line of op_table.h for each operator; where its arguments stand is said at installation."""
    text = (native_build.SOURCES / "c10d" / "op_table.h").read_text()
    lines = [line for line in text.splitlines() if ".name = " in line]
    assert len(lines) == len(OPS)
    for spec in OPS.values():
        (line,) = (line for line in lines if f'.name = "{spec.name}"' in line)
        assert f"Returns::{spec.returns}" in line
        assert (".is_p2p = true" in line) == spec.is_p2p


def test_native_fingerprints_are_those_of_torch(spawn: Spawn, tmp_path: Path) -> None:
    run_job(spawn, tmp_path, "fingerprints", 1)


@pytest.fixture
def torch_with_cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a machine without a toolkit."""
    monkeypatch.setattr(torch.version, "cuda", "1.0")
    monkeypatch.setattr(cuda_headers, "SYSTEM", tmp_path / "none")
    monkeypatch.delenv("CUDA_HOME", raising=False)


@pytest.mark.usefixtures("torch_with_cuda")
def test_memory_of_gpus_is_built_in_where_cudas_headers_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cuda_headers.find() is None and "cuda_runtime_api.h" in cuda_headers.missing()
    without = native_build.key()
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda_runtime_api.h").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert cuda_headers.find() == tmp_path / "include" and cuda_headers.missing() == ""
    assert native_build.key() == native_build.key(with_cuda=True) != without == native_build.key(with_cuda=False)


@pytest.mark.usefixtures("torch_with_cuda")
def test_a_build_with_cuda_is_found_where_its_headers_are_not(tmp_path: Path) -> None:
    for with_cuda in (False, True):
        library = tmp_path / "native" / native_build.key(with_cuda) / f"{native_build.MODULE}.so"
        library.parent.mkdir(parents=True)
        library.touch()
        assert native_build.find(tmp_path) == (library, "")


def test_a_torch_without_cuda_needs_none_of_its_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda_runtime_api.h").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(torch.version, "cuda", None)
    assert cuda_headers.find() is None and "cuda." not in native_build.key()
