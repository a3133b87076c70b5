"""A program's own native code: what torch compiles for it when it starts, libraries that lie beside it, and what they
read. Where a replay runs there may be no compiler, and nothing of what the job's machine had.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest
from chain import prismdbg
from jobs import plain_environment, recorded_by_command_line, torchrun

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "builds.py"
TWICE = 'extern "C" double twice(double x) { return 2 * x; }\n'
FOUR = "double four_times(double x) { return 4 * x; }\n"
FIVE = """
#include <Python.h>
static PyObject *times(PyObject *self, PyObject *x) { return PyFloat_FromDouble(5 * PyFloat_AsDouble(x)); }
static PyMethodDef methods[] = {{"times", times, METH_O, ""}, {0, 0, 0, 0}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "five_times", 0, -1, methods};
PyMODINIT_FUNC PyInit_five_times(void) { return PyModule_Create(&definition); }
"""
EXTENSION = sysconfig.get_config_var("EXT_SUFFIX")


@dataclass(frozen=True, slots=True)
class Recorded:
    """`capsules`: by rank. `built` is gone from this machine, as all that the program needs but its own folder."""

    program: Path
    built: Path
    capsules: tuple[Path, Path]


@pytest.fixture(scope="module", params=["built before", "built by the job"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("native-code")
    program, built = folder / "job" / "builds.py", folder / "extensions"
    (program.parent / "lib").mkdir(parents=True)
    shutil.copy(PROGRAM, program)
    (program.parent / "twice.cpp").write_text(TWICE)
    (program.parent / "zero.bin").write_bytes(bytes(8))
    (program.parent / "held.bin").write_bytes(b"7")
    compiled(FOUR, program.parent / "lib" / "libfour.so")
    compiled(FIVE, program.parent / f"five_times{EXTENSION}", f"-I{sysconfig.get_path('include')}")
    line, env = torchrun(program, ranks=2), plain_environment(TORCH_EXTENSIONS_DIR=str(built))
    if request.param == "built before":
        subprocess.run(line, env=env, check=True, capture_output=True, timeout=300)
    made = recorded_by_command_line(line, folder / "run", "--window", "all", env=env, bound_s=300)
    assert made.ended.code == 0, made.ended.output[-3000:]
    capsules = folder / "0.capsule", folder / "1.capsule"
    for rank, capsule in enumerate(capsules):
        said = prismdbg("capture", made.run.path, "--rank", rank, "--origin", "start", "-o", capsule)
        assert said.code == 0, said.err
    shutil.rmtree(built)
    shutil.move(program.parent, folder / "moved")
    return Recorded(folder / "moved" / "builds.py", built, capsules)


def compiled(source: str, to: Path, *options: str) -> None:
    line = ["gcc", "-xc", "-", "-shared", "-fPIC", "-o", str(to), *options]
    subprocess.run(line, input=source.encode(), check=True, timeout=60)


@pytest.mark.parametrize("runtime", [pytest.param("docker", marks=pytest.mark.docker), "local"])
def test_a_replay_has_it_as_the_job_had_it(recorded: Recorded, runtime: str) -> None:
    for capsule in recorded.capsules:
        said = prismdbg("replay", capsule, "--runtime", runtime)
        assert said.code == 0, said.out + said.err
        assert "5 collectives compared" in said.out
        assert "Building extension" not in said.out and not recorded.built.exists()
