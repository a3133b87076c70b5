"""`make frameworks`: the programs of examples/frameworks with the newest frameworks, in a virtual environment of their
own. What the tests of this folder saw goes into the table of docs/frameworks.md, a row for each program."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from compat import commit, run, said_by  # noqa: E402

PAGE = ROOT / "docs" / "frameworks.md"
VENV = ROOT / ".compat" / "frameworks"
TORCH = "2.13.0"
HEADING = "## Tested versions\n"
RULE = "|---"
LIBRARIES = ("SimpleITK", "av", "decord", "faiss-cpu", "h5py", "lmdb", "opencv-python-headless", "polars", "soundfile")
TITAN_NEEDS = ("torchdata", "torch_checkpointing", "tyro", "datasets", "einops", "spmd_types==0.2.3", "tensorboard")
TRACKERS = ("wandb", "mlflow-skinny")
RAY = "ray[train]"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: what pip calls the framework, and what of it the program uses."""

    package: str
    uses: str


ROWS = {
    "transformers": Row("transformers", "Trainer, DDP"),
    "accelerate": Row("accelerate", "loop, DDP"),
    "lightning": Row("lightning", "Trainer, DDP, own launcher"),
    "megatron-tp2": Row("megatron-core", "GPT, TP 2"),
    "megatron-pp2": Row("megatron-core", "GPT, PP 2"),
    "torchtitan": Row("torchtitan", "loop, FSDP2"),
    "deepspeed-zero2": Row("deepspeed", "engine, ZeRO-2"),
    "deepspeed-zero3": Row("deepspeed", "engine, ZeRO-3"),
}
COLUMNS = {
    "test_the_job_computes_what_it_computes_bare": ("recorded", "equal: {} values"),
    "test_steps_are_counted_as_the_framework_counts_them": ("steps", "as it counts: {}"),
    "test_collectives_are_named_by_the_line_of_the_program": ("lines", "own: {}"),
    "test_it_is_replayed_from_its_start": ("start", "identical: {}"),
    "test_it_is_captured_while_it_runs": ("checkpoint", "identical: {}"),
    "test_it_goes_on_from_its_state_snapshot": ("state", "identical: {}"),
    "test_it_is_emulated_in_a_job_of_64_ranks": ("emulated", "{}"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, help="an interpreter that has the frameworks already")
    parser.add_argument("--only", choices=ROWS, nargs="+", default=list(ROWS), help="these, in this order")
    asked = parser.parse_args()
    python = asked.python or prepared()
    tested = commit()
    with tempfile.TemporaryDirectory() as built:  # by DeepSpeed, once: it waits for ever for a lock of a killed run
        os.environ.setdefault("TORCH_EXTENSIONS_DIR", built)
        code = tried_all(python, asked.only, tested)
    libraries = str(Path(__file__).parent / "test_native_libraries.py")
    return code or run([str(python), "-m", "pytest", "-q", "-m", "frameworks", libraries], check=False)


def tried_all(python: Path, names: list[str], tested: str) -> int:
    outcomes = [tried(python, name, tested) for name in names]  # all, also after one that failed
    return 0 if all(outcomes) else 1


def tried(python: Path, name: str, tested: str) -> bool:
    """Whether nothing failed; what was seen is then in the table."""
    report = ROOT / ".compat" / f"frameworks-{name}.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    pytest = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-m",
        "frameworks",
        "-k",
        f"[{name}]",
        f"--junit-xml={report}",
        "-o",
        "junit_family=xunit1",
    ]
    run([*pytest, str(Path(__file__).parent)], check=False)
    cases = list(ET.parse(report).getroot().iter("testcase"))
    date = datetime.now(UTC).date().isoformat()
    cells = [title(python, ROWS[name]), *(cell(cases, test) for test in COLUMNS), date, tested]
    new = f"| {' | '.join(cells)} |"
    PAGE.write_text(with_row(PAGE.read_text(), new))
    print(new)
    return bool(cases) and not any(map(failed, cases))


def prepared() -> Path:
    """An interpreter with this prismdbg and the frameworks. torch first: frameworks would bring a newer one."""
    python = VENV / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", str(VENV)])
    pip = [str(python), "-m", "pip", "install", "-q"]
    run([*pip, f"torch=={TORCH}"])
    run([*pip, "-e", f"{ROOT}[dev]"])
    run(
        [
            *pip,
            f"torch=={TORCH}",
            "transformers",
            "accelerate",
            "lightning",
            "megatron-core",
            *TITAN_NEEDS,
            *TRACKERS,
            RAY,
        ]
    )
    os.environ["DS_BUILD_OPS"] = "0"
    run([*pip, "setuptools", "wheel", "ninja"])
    run([*pip, "--no-build-isolation", f"torch=={TORCH}", "deepspeed"])  # its set-up imports torch
    run([*pip, *LIBRARIES])
    run([*pip, "--no-deps", "torchtitan"])  # it names packages that only its own logging needs
    run([str(VENV / "bin" / "prismdbg"), "setup"])
    return python


def title(python: Path, row: Row) -> str:
    version = said_by(python, f"from importlib.metadata import version; print(version({row.package!r}))")
    return f"{row.package} {version}: {row.uses}"


def failed(case: ET.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def cell(cases: list[ET.Element], test: str) -> str:
    name, form = COLUMNS[test]
    case = next((case for case in cases if str(case.get("name")).startswith(f"{test}[")), None)
    if case is None or failed(case):
        return "not run" if case is None else "**failed**"
    values = [found.get("value") for found in case.iter("property") if found.get("name") == name]
    return form.format(values[0]) if values else "-"


def with_row(page: str, new: str) -> str:
    """The page with this row in place of the one of the same program, also if that is of an older version; in order."""
    before, heading, rest = page.partition(HEADING)
    lines = rest.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(RULE)) + 1
    last = next((number for number in range(first, len(lines)) if not lines[number].startswith("|")), len(lines))
    rows = {program_of(line): line for line in lines[first:last]} | {program_of(new): new}
    order = [(row.package, row.uses) for row in ROWS.values()]
    kept = [rows[program] for program in order if program in rows]
    return before + heading + "\n".join([*lines[:first], *kept, *lines[last:]]) + "\n"


def program_of(line: str) -> tuple[str, str]:
    """Package and use, from the first cell."""
    name, _, uses = line.split("|")[1].strip().partition(": ")
    return name.rpartition(" ")[0], uses


if __name__ == "__main__":
    sys.exit(main())
