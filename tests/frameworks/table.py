"""`make frameworks`: the tests of this folder with the newest transformers, Accelerate, Lightning and torchtitan, in a
virtual environment of their own. The outcome goes into the table of docs/frameworks.md."""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from compat import commit, run, said_by, with_row  # noqa: E402

PAGE = ROOT / "docs" / "frameworks.md"
VENV = ROOT / ".compat" / "frameworks"
TORCH = "2.13.0"
HEADING = "## Tested versions\n"
IDENTICAL = "identical"
TITAN_NEEDS = ("torchdata", "torch_checkpointing", "tyro", "datasets", "einops", "spmd_types==0.2.3", "tensorboard")
TESTS = {
    "transformers": "hf_trainer",
    "accelerate": "accelerate_loop",
    "lightning": "lightning_fit",
    "torchtitan": "titan_loop",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, help="an interpreter that has the frameworks already")
    parser.add_argument("--only", choices=TESTS, nargs="+", default=list(TESTS), help="these, in this order")
    asked = parser.parse_args()
    python = asked.python or prepared()
    tested = commit()
    outcomes = [tried(python, package, tested) for package in asked.only]
    return 0 if all(outcome == IDENTICAL for outcome in outcomes) else 1


def tried(python: Path, package: str, tested: str) -> str:
    """The outcome, which is then in the table."""
    report = ROOT / ".compat" / f"frameworks-{package}.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    pytest = [str(python), "-m", "pytest", "-q", "-m", "frameworks", "-k", TESTS[package], f"--junit-xml={report}"]
    run([*pytest, str(Path(__file__).parent)], check=False)
    cases = list(ET.parse(report).getroot().iter("testcase"))
    outcome = outcome_of(cases)
    torch = said_by(python, "import torch; print(torch.__version__)")
    version = said_by(python, f"from importlib.metadata import version; print(version({package!r}))")
    date = datetime.now(UTC).date().isoformat()
    count = f"{len(cases)} test{'s' if len(cases) != 1 else ''}"
    new = f"| {package} {version} | {torch} | {count}: {outcome} | {date} | {tested} |"
    before, heading, table = PAGE.read_text().partition(HEADING)
    PAGE.write_text(before + heading + with_row(table, f"{package} {version}", new))
    print(new)
    return outcome


def prepared() -> Path:
    """An interpreter with this prismdbg and the frameworks. torch first: frameworks would bring a newer one."""
    python = VENV / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", str(VENV)])
    pip = [str(python), "-m", "pip", "install", "-q"]
    run([*pip, f"torch=={TORCH}"])
    run([*pip, "-e", f"{ROOT}[dev]"])
    run([*pip, f"torch=={TORCH}", "transformers", "accelerate", "lightning", *TITAN_NEEDS])
    run([*pip, "--no-deps", "torchtitan"])  # it names packages that only its own logging needs
    run([str(VENV / "bin" / "prismdbg"), "setup"])
    return python


def outcome_of(cases: list[ET.Element]) -> str:
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    if failed:
        return "failed: " + ", ".join(f"`{case.get('name')}`" for case in failed)
    skipped = any(case.find("skipped") is not None for case in cases)
    return "not run" if skipped or not cases else IDENTICAL


if __name__ == "__main__":
    sys.exit(main())
