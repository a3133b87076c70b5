"""The main job from end to end, through the command line alone: a job trains, one rank reads corrupt data, the incident
is captured, and the rank is replayed without the others to the NaN, bit for bit.

    make demo
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TRAIN = HERE.parent / "incidents" / "nan" / "train.py"
RUN = Path("demo-run")
BIN = Path(sys.executable).parent
PRISMDBG, TORCHRUN = str(BIN / "prismdbg"), str(BIN / "torchrun")
JOB = [
    TORCHRUN,
    "--nproc-per-node",
    "4",
    str(TRAIN.relative_to(Path.cwd()) if TRAIN.is_relative_to(Path.cwd()) else TRAIN),
]


class Chapter:
    """A heading, and how long what follows took."""

    number = 0

    def __init__(self, title: str) -> None:
        Chapter.number += 1
        print(f"\n=== {Chapter.number}. {title}", flush=True)
        self._started = time.monotonic()

    def __enter__(self) -> "Chapter":
        return self

    def __exit__(self, *_: object) -> None:
        print(f"    ({time.monotonic() - self._started:.1f} s)", flush=True)


def run(*command: str, check: bool = True) -> int:
    """Shows the command as a person would type it, then lets it speak for itself."""
    print("$ " + " ".join(command).replace(str(BIN) + "/", ""), flush=True)
    code = subprocess.run(command, check=False).returncode
    if check and code:
        sys.exit(f"the demo ends here: exit code {code}")
    return code


def ask(*command: str) -> str:
    """The data a command prints; its talk goes past us to the terminal."""
    print("$ " + " ".join(command).replace(str(BIN) + "/", ""), flush=True)
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode:
        sys.exit(f"the demo ends here: exit code {answer.returncode}")
    return answer.stdout


def has_docker() -> bool:
    facilities = json.loads(subprocess.run([PRISMDBG, "doctor", "--json"], stdout=subprocess.PIPE, check=False).stdout)
    return any(f["name"] == "docker" and f["ok"] for f in facilities["facilities"])


def main() -> None:
    began = time.monotonic()
    if RUN.exists():
        shutil.rmtree(RUN)
    with Chapter("four ranks train, and the job is recorded without a change"):
        code = run(PRISMDBG, "record", "-o", str(RUN), "--checkpoint-every", "5", "--", *JOB, check=False)
        print(f"    the job ended with exit code {code}: it did not notice the NaN")

    with Chapter("the loss becomes NaN; which rank was first?"):
        run(PRISMDBG, "why", str(RUN))
        capsules = json.loads((RUN / "supervisor.json").read_text())["capsules"]
        if not capsules:
            sys.exit("the demo ends here: the incident created no capsule; see the problems above")
        capsule = str(
            Path(capsules[0]).relative_to(Path.cwd()) if Path(capsules[0]).is_relative_to(Path.cwd()) else capsules[0]
        )

    with Chapter("the capsule of the incident"):
        run(PRISMDBG, "inspect", capsule)
        run(PRISMDBG, "verify", capsule)

    runtime = "docker" if has_docker() else "local"
    if runtime == "docker":
        with Chapter("a container image of the rank's installed files"):
            run(PRISMDBG, "build", capsule)
    with Chapter(f"replay the rank with virtual peers ({runtime})"):
        verdict = json.loads(ask(PRISMDBG, "replay", capsule, "--runtime", runtime, "--json"))
        print(f"    {verdict['summary']}")
        for note in verdict["notes"]:
            print(f"    {note}")

    manifest = json.loads(ask(PRISMDBG, "inspect", capsule, "--json"))
    print(f"\nThe incident: {manifest['incident']['text']}")
    print("\nContinue by hand:")
    print(f"    {PRISMDBG.replace(str(Path.cwd()) + '/', '')} debug {capsule}")
    print(
        f"    {PRISMDBG.replace(str(Path.cwd()) + '/', '')} replay {capsule} --until {manifest['incident']['moment']}"
    )
    print(f"\n({time.monotonic() - began:.0f} s in total)")


if __name__ == "__main__":
    main()
