"""The native library: built once for each torch, Python and source; loaded, never compiled, inside a job."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from native_ranks import run_job

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
    (cache / "native" / ".build.partial-removed-1").mkdir(parents=True)
    (cache / "native" / ".build.partial-removed-1" / "unit.o").touch()
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


def test_native_fingerprints_are_those_of_torch(tmp_path: Path) -> None:
    run_job(tmp_path, "fingerprints", 1)


@pytest.fixture
def toolkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where it is looked for first; a torch with CUDA, on a machine without headers."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(cuda_headers, "SYSTEM", tmp_path / "none")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    return tmp_path / "cuda" / "include"


def install(toolkit: Path, text: str = "") -> None:
    (toolkit / "crt").mkdir(parents=True)
    for name in (cuda_headers.HEADER, "crt/host_defines.h"):
        (toolkit / name).write_text(text)


def test_cudas_headers_are_found_or_it_is_said_where_not(toolkit: Path) -> None:
    assert cuda_headers.find() == () and cuda_headers.HEADER in cuda_headers.missing()
    install(toolkit)
    assert cuda_headers.find() == (toolkit,) and cuda_headers.missing() == ""


def test_headers_without_their_parts_are_none(toolkit: Path) -> None:
    install(toolkit)
    (toolkit / "crt" / "host_defines.h").unlink()
    assert cuda_headers.find() == ()


def test_a_torch_without_cuda_needs_none_of_its_headers(toolkit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(toolkit)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert cuda_headers.find() == () and "no CUDA" in cuda_headers.missing()


def test_a_build_with_cuda_is_preferred_wherever_it_is_loaded(toolkit: Path, tmp_path: Path) -> None:
    for with_cuda in (False, True):
        library = tmp_path / "native" / native_build.key(with_cuda=with_cuda) / f"{native_build.MODULE}.so"
        library.parent.mkdir(parents=True)
        library.touch()
        assert native_build.find(tmp_path) == (library, "")
    assert cuda_headers.find() == ()


SMALL = """
#ifdef PRISMDBG_CUDA
#include <cuda_runtime_api.h>
#endif
"""


@pytest.mark.parametrize(("header", "with_cuda"), [("", True), ("#error of another version\n", False)])
def test_headers_that_do_not_compile_cost_only_what_needs_them(
    toolkit: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, header: str, with_cuda: bool
) -> None:
    """A library of one small source; `libc10_cuda` is not there with a torch for CPUs, so that it is invented."""
    install(toolkit, header)
    sources = tmp_path / "sources"
    (sources / "tracer").mkdir(parents=True)
    (sources / "small.cpp").write_text(SMALL)
    (sources / "tracer" / "cuda_allocations.cpp").write_text("#include <cuda_runtime_api.h>\n")
    monkeypatch.setattr(native_build, "SOURCES", sources)
    monkeypatch.setenv("LIBRARY_PATH", str(tmp_path))
    subprocess.run(["g++", "-shared", "-xc++", "/dev/null", "-o", tmp_path / "libc10_cuda.so"], check=True)
    assert native_build.build(tmp_path / "cache").parent.name == native_build.key(with_cuda=with_cuda)
