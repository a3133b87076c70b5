"""`make compat TORCH=2.14.1`: the tour of all operators, the chain and the demo on another torch, in a venv of its own.

The outcome goes into the table of docs/torch-versions.md; a row says what was run, when and at which commit.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "torch-versions.md"
FILES = (
    "test_tour.py",
    "test_native_recording.py",
    "test_native_window.py",
    "test_example_replay.py",
    "test_chain_capture.py",
    "test_chain_programs.py",
    "test_state_programs.py",
    "test_two_nodes.py",
    "test_emulated_rank_again.py",
    "test_tracing.py",
    "test_times.py",
    "test_newer_operator.py",
    "test_state_origin.py",
    "test_schemas.py",
)
BOUND_S = 3 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    passed: int
    skipped: int
    failed: tuple[str, ...]
    demo: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("torch", help="a version, such as 2.14.1")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the venv (default: this one)")
    parser.add_argument("--venvs", type=Path, default=ROOT / ".compat", help="where its venv is made and kept")
    asked = parser.parse_args()
    if not re.fullmatch(r"\d+\.\d+\.\d+", asked.torch):
        parser.error(f"{asked.torch!r} is not a version such as 2.14.1")
    interpreter = said_by(asked.python, "import platform as p; print(p.python_version())")
    venv = asked.venvs / f"torch-{asked.torch}-python-{interpreter}"
    python = prepared(venv, asked.torch, asked.python)
    version = said_by(python, "import torch; print(torch.__version__)")
    report = venv.with_name(f"{venv.name}.xml")
    report.unlink(missing_ok=True)
    files = [str(path) for name in FILES for path in (ROOT / "tests").rglob(name)]
    side_by_side = ["-n", "logical", "--maxprocesses", "4", "--dist", "loadfile"]
    pytest = [str(python), "-m", "pytest", "-q", *side_by_side, f"--junit-xml={report}"]
    run([*pytest, *files], check=False)
    demo = run([str(python), str(ROOT / "examples" / "demo" / "demo.py")], check=False) == 0
    outcome = read(report, demo)
    page = PAGE.read_text()
    PAGE.write_text(with_row(page, row(version, interpreter, outcome)))
    print(f"torch {version}: {outcome}")
    return 0 if demo and not outcome.failed else 1


def prepared(venv: Path, torch: str, interpreter: str) -> Path:
    """Its interpreter, with that torch, this prismdbg, and the recorder built for it."""
    python = venv / "bin" / "python"
    if not python.exists():
        run([interpreter, "-m", "venv", str(venv)])
    run([str(python), "-m", "pip", "install", "-q", f"torch=={torch}"])
    run([str(python), "-m", "pip", "install", "-q", "-e", f"{ROOT}[dev]"])
    run([str(venv / "bin" / "prismdbg"), "setup"])
    return python


def run(command: list[str], *, check: bool = True) -> int:
    print("+", *command, flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=check, timeout=BOUND_S).returncode


def said_by(python: Path | str, program: str) -> str:
    return subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def read(report: Path, demo: bool) -> Outcome:
    cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return Outcome(
        passed=len(cases) - len(failed) - skipped,
        skipped=skipped,
        failed=(*(str(case.get("name")) for case in failed), *(f"{name} ran no test" for name in without_tests(cases))),
        demo=demo,
    )


def without_tests(cases: Sequence[ET.Element]) -> list[str]:
    """Those of FILES of which no test ran; one that was skipped did not."""
    ran = {part for case in cases if case.find("skipped") is None for part in str(case.get("classname")).split(".")}
    return [name for name in FILES if Path(name).stem not in ran]


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def row(version: str, python: str, outcome: Outcome) -> str:
    tests = f"{outcome.passed} passed, {outcome.skipped} skipped"
    tests += f", failed: {', '.join(f'`{name}`' for name in outcome.failed)}" if outcome.failed else ""
    demo = "identical" if outcome.demo else "failed"
    date = datetime.now(UTC).date().isoformat()
    return f"| {version} | {python} | {platform.machine()} | {tests} | {demo} | {date} | {commit()} |"


def with_row(page: str, new: str) -> str:
    """In the table, in order of versions of torch and Python, in place of an older one."""
    lines = page.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("|---")) + 1
    last = next((at for at in range(first, len(lines)) if not lines[at].startswith("|")), len(lines))
    rows = [line for line in lines[first:last] if _versions(line) != _versions(new)] + [new]
    rows.sort(key=_versions)
    return "\n".join([*lines[:first], *rows, *lines[last:]]) + "\n"


def _versions(line: str) -> list[list[int]]:
    """Of torch, without its build, and of Python."""
    return [[int(number) for number in re.findall(r"\d+", cell)[:3]] for cell in line.split("|")[1:3]]


if __name__ == "__main__":
    sys.exit(main())
