"""Loops are compiled for the vector units that the compiler knows by their names."""

from __future__ import annotations

import platform
import shutil
import subprocess

import pytest

from prismdbg.rank.native import build as native_build


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines have one copy of each loop")
@pytest.mark.parametrize(("version", "levels"), [(11, 0), (12, 1)])
def test_older_compilers_are_not_asked_for_levels_of_the_instruction_set(version: int, levels: int) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    text = '#include "recorder/vectorized.h"\nPRISMDBG_VECTORIZED void loop();\n'
    command = [compiler, "-E", "-xc++", "-U__GNUC__", f"-D__GNUC__={version}", f"-I{native_build.SOURCES}", "-"]
    out = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60).stdout
    assert out.count("x86-64-v") == levels
    assert out.count("target_clones") == 1 and '"avx2", "default"' in out
