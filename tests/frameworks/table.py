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
TITAN_NEEDS = ("torchdata", "torch_checkpointing", "tyro", "datasets", "einops", "spmd_types==0.2.3", "tensorboard")
TESTS = {
    "transformers": ("hf_trainer", "test_a_nan_of_the_trainer"),
    "accelerate": ("accelerate_loop",),
    "lightning": ("lightning_fit",),
    "torchtitan": ("titan_loop",),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, help="an interpreter that has the frameworks already")
    python = parser.parse_args().python or prepared()
    tested = commit()
    report = ROOT / ".compat" / "frameworks.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    here = str(Path(__file__).parent)
    run([str(python), "-m", "pytest", "-q", "-m", "frameworks", f"--junit-xml={report}", here], check=False)
    cases = list(ET.parse(report).getroot().iter("testcase"))
    torch = said_by(python, "import torch; print(torch.__version__)")
    good = True
    for package, names in TESTS.items():
        mine = [case for case in cases if any(name in str(case.get("name")) for name in names)]
        outcome = outcome_of(mine)
        good &= outcome == "identical"
        version = said_by(python, f"from importlib.metadata import version; print(version({package!r}))")
        date = datetime.now(UTC).date().isoformat()
        new = f"| {package} {version} | {torch} | {len(mine)} tests: {outcome} | {date} | {tested} |"
        PAGE.write_text(with_row(PAGE.read_text(), f"{package} {version}", new))
        print(new)
    return 0 if good else 1


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
    return "not run" if skipped or not cases else "identical"


if __name__ == "__main__":
    sys.exit(main())
