"""Every facility is named, says what it is for, and has a fix where it is missing."""

from __future__ import annotations

import os
from pathlib import Path

from prismdbg.errors import FacilityError
from prismdbg.runtime.facilities import Facility, facilities


def no_criu() -> str:
    raise FacilityError("no usable CRIU: none is installed", hint="build one")


def probe(cache: Path, **more: object) -> dict[str, Facility]:
    found = facilities(cache, "criu", **{"find_engine": lambda: "4.2.1", **more})  # type: ignore[arg-type]
    return {facility.name: facility for facility in found}


def test_each_has_what_a_reader_needs(tmp_path: Path) -> None:
    found = probe(tmp_path)
    assert set(found) == {
        *("kernel", "torch", "compiler", "native recorder", "criu", "mmdebstrap", "docker"),
        *("capabilities", "namespaces", "overlayfs", "disk", "shared memory", "gpu"),
        *("sensors", "gpu sensors"),
        *("old native builds", "container images of replays"),
    }
    for facility in found.values():
        assert facility.needed_for and facility.detail
        assert bool(facility.fix) is not facility.ok


def test_criu_s_reason_and_fix_are_its_own(tmp_path: Path) -> None:
    criu = probe(tmp_path, find_engine=no_criu)["criu"]
    assert not criu.ok
    assert (criu.detail, criu.fix) == ("no usable CRIU: none is installed", "build one")
    assert probe(tmp_path)["criu"].detail == "4.2.1, passed a dump and a restore"


def test_the_native_recorder_is_found_in_the_cache(tmp_path: Path) -> None:
    assert not probe(tmp_path)["native recorder"].ok
    (tmp_path / "native" / "torch-2").mkdir(parents=True)
    (tmp_path / "native" / "torch-2" / "module.so").touch()
    assert probe(tmp_path)["native recorder"].detail == "native/torch-2/module.so"


def test_a_build_that_a_newer_one_replaced_is_named_with_its_size(tmp_path: Path) -> None:
    for number, name in enumerate(("torch-2.13-cp311-aa", "torch-2.13-cp311-bb", "torch-2.12-cp311-cc")):
        library = tmp_path / "native" / name / "module.so"
        library.parent.mkdir(parents=True)
        library.write_bytes(bytes(3 << 20))
        os.utime(library, ns=(number, number))
    found = probe(tmp_path)
    old = found["old native builds"].detail
    assert old == f"1, 3.0 MiB: {tmp_path}/native/torch-2.13-cp311-aa (3 MiB); remove the folders"
    assert found["native recorder"].detail == ", ".join(
        f"native/{name}/module.so" for name in ("torch-2.12-cp311-cc", "torch-2.13-cp311-bb")
    )


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    probe(tmp_path)
    assert not list(Path("/tmp").glob(".prismdbg-overlay-*"))
    assert not list(tmp_path.iterdir())
