"""`make dist`: an sdist and a wheel, and a trial of each in a venv of its own that has torch and nothing of ours.

Recorded, explained and replayed with a cache that holds nothing: without a compiler by the Python kernels, then by the
native recorder that `prismdbg setup` builds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRAIN = ROOT / "examples" / "incidents" / "nan" / "train.py"
TYPED = ROOT / "tests" / "typed_program.py"
BOUND_S = 1800.0
COMPILERS = ("g++", "c++", "gcc", "cc", "clang++", "clang")


def main() -> int:
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="prismdbg-dist-") as temporary:
        home = Path(temporary)
        run([sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)], cwd=home)
        torch = said_by(sys.executable, "import torch; print(torch.__version__.partition('+')[0])")
        for package in sorted(dist.iterdir()):
            trial(package, torch, home / package.suffix.removeprefix("."))
    print("tried:", *sorted(path.name for path in dist.iterdir()))
    return 0


def trial(package: Path, torch: str, home: Path) -> None:
    home.mkdir()
    run([sys.executable, "-m", "venv", str(home / "venv")], cwd=home)
    run([str(home / "venv" / "bin" / "pip"), "install", "-q", f"torch=={torch}", str(package)], cwd=home)
    python = str(home / "venv" / "bin" / "python")
    run([sys.executable, "-m", "mypy", "--strict", "--python-executable", python, str(TYPED)], cwd=home)
    for name, hidden in (("python", True), ("native", False)):
        path = without_compilers(home / "bin") if hidden else os.environ["PATH"]
        environment = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(home / "cache"), "OMP_NUM_THREADS": "1"}
        if not hidden:
            run([str(home / "venv" / "bin" / "prismdbg"), "setup"], cwd=home, environment=environment)
        chain(home / "venv" / "bin", home / f"run-{name}", name, environment)


def chain(programs: Path, folder: Path, recorder: str, environment: dict[str, str]) -> None:
    """From the job to its capsule's verdict, nowhere near the sources."""
    prismdbg, torchrun = str(programs / "prismdbg"), str(programs / "torchrun")
    job = [torchrun, "--standalone", "--nproc-per-node", "2", str(TRAIN), "--steps", "44"]
    run([prismdbg, "record", "-o", str(folder), "--window", "all", "--", *job], cwd=programs, environment=environment)
    (capsule,) = (folder / "capsules").iterdir()
    run([prismdbg, "why", str(folder)], cwd=programs, environment=environment)
    run([prismdbg, "replay", str(capsule), "--runtime", "local"], cwd=programs, environment=environment)
    described = json.loads((capsule / "prismdbg" / "rank.json").read_text())
    if described["recorder"] != recorder:
        raise SystemExit(f"{capsule} was recorded by the {described['recorder']} recorder, not by {recorder}")


def without_compilers(folder: Path) -> str:
    """A search path with the same programs, but for the compilers."""
    folder.mkdir(exist_ok=True)
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.iterdir() if place.is_dir() else ():
            if program.name not in COMPILERS and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def run(command: list[str], *, cwd: Path, environment: dict[str, str] | None = None) -> None:
    print("+", *command, flush=True)
    subprocess.run(command, cwd=cwd, env=environment, check=True, timeout=BOUND_S)


def said_by(python: str, program: str) -> str:
    return subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
