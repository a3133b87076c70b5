"""NVML through the real nvidia-ml-py: over a library that stands in for the driver, and over a driver where one is."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from ctypes import CDLL
from pathlib import Path
from typing import Any

import pytest

from tests import c_library, fake_nvml

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pynvml") is None, reason="nvidia-ml-py is not installed (extra telemetry)"
)
PROGRAM = Path(__file__).with_name("nvml_conformance.py")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if c_library.compiler() is None:
        pytest.skip("no C compiler builds the library that stands in for the driver")
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


def collect(environment: dict[str, str], looks: int = 11) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), str(looks)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_scripted_readings_are_read_and_marked_fake(library: Path, tmp_path: Path) -> None:
    script = fake_nvml.write_script(
        tmp_path / "script",
        [{"power": [(0, 250_000)], "throttle_reasons": [(0, 0x40)], "sm_clock": [(0, 900)], "field_82": [(0, 71)]}],
    )
    found = collect(fake_nvml.environment(library, script))
    assert found["readings"]["gpu GPU-FAKE-0/power"] == ["fake", "mW", 250_000]
    assert found["readings"]["gpu GPU-FAKE-0/throttle_reasons"] == ["fake", "bits", 0x40]
    assert found["readings"]["gpu GPU-FAKE-0/memory_temperature"] == ["fake", "°C", 71]
    assert found["texts"]["gpu GPU-FAKE-0/name"] == "FAKE device 0"


def test_retired_pages_are_counted_by_their_cause(library: Path, tmp_path: Path) -> None:
    script = fake_nvml.write_script(
        tmp_path / "script", [{"retired_pages_corrected": [(0, 3)], "retired_pages_uncorrected": [(0, 0)]}, {}]
    )
    found = collect(fake_nvml.environment(library, script))
    assert found["readings"]["gpu GPU-FAKE-0/retired_pages_corrected"] == ["fake", "pages", 3]
    assert found["readings"]["gpu GPU-FAKE-0/retired_pages_uncorrected"] == ["fake", "pages", 0]
    assert found["missing"]["gpu GPU-FAKE-1/retired_pages_corrected"] == "Not Supported"


@pytest.mark.parametrize(
    ("fields", "kib"),
    [
        ({"field_138": [(0, 5)], "field_138_4294967295": [(0, 90)]}, 90),
        ({"field_138": [(0, 5)], "field_138_17": [(0, 7)]}, 12),  # a driver that does not add them up
    ],
)
def test_bytes_of_nvlink_are_those_of_all_links(
    library: Path, tmp_path: Path, fields: fake_nvml.Script, kib: int
) -> None:
    """A field is named by its number and by the link, or all, that it is asked for."""
    found = collect(fake_nvml.environment(library, fake_nvml.write_script(tmp_path / "script", [fields])))
    assert found["readings"]["gpu GPU-FAKE-0/nvlink_sent"] == ["fake", "bytes", kib * 1024]


def test_what_is_not_scripted_is_missing_and_never_zero(library: Path, tmp_path: Path) -> None:
    script = fake_nvml.write_script(tmp_path / "script", [{"power": [(0, 1)]}])
    found = collect(fake_nvml.environment(library, script))
    assert set(found["readings"]) == {"gpu GPU-FAKE-0/power"}
    assert found["missing"]["gpu GPU-FAKE-0/temperature"] == "Not Supported"
    assert found["missing"]["gpu GPU-FAKE-0/ecc_uncorrected"] == "Not Supported"
    assert found["missing"]["gpu GPU-FAKE-0/nvlink_sent"] == "Not Supported"


def test_a_rank_is_mapped_to_its_device_by_uuid(library: Path, tmp_path: Path) -> None:
    script = fake_nvml.write_script(tmp_path / "script", [{}, {"power": [(0, 1)]}])
    (script / "1" / "processes").write_text("4711\n")
    found = collect({**fake_nvml.environment(library, script), "RANK_PID": "4711"})
    assert found["texts"]["rank 3/device"] == "GPU-FAKE-1"


def test_an_error_of_the_driver_is_said_in_its_words(library: Path, tmp_path: Path) -> None:
    script = fake_nvml.write_script(tmp_path / "script", [{}])
    (script / "0" / "power").write_text("0 error 15\n")
    assert collect(fake_nvml.environment(library, script))["missing"]["gpu GPU-FAKE-0/power"] == "GPU is lost"


def test_readings_of_a_driver_conform() -> None:
    try:
        CDLL("libnvidia-ml.so.1")
    except OSError as error:
        pytest.skip(f"no NVIDIA driver: {error}")
    found = collect(dict(os.environ))
    assert not [name for name, (provenance, *_) in found["readings"].items() if provenance == "fake"]
    assert any(name.endswith("/temperature") for name in found["readings"])


def test_without_a_driver_the_library_is_said_to_be_missing(tmp_path: Path) -> None:
    try:
        CDLL("libnvidia-ml.so.1")
    except OSError:
        assert collect(dict(os.environ))["missing"]["gpu/nvml"] == "NVML Shared Library Not Found"
    else:
        pytest.skip("this machine has a driver")
