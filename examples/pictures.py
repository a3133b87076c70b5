"""Makes the pictures of the walkthroughs: each incident is recorded, its capsule opened on the screen, and the keys are
pressed that its README names.

    make pictures             # all of them
    make pictures OF=nan      # of one incident
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prismdbg_tui.app import PrismApp
from prismdbg_tui.start import live_rank
from prismdbg_tui.views import Phase
from textual.pilot import Pilot

from prismdbg.capsule import layout
from prismdbg.workflows.pack import opened
from prismdbg.workflows.replay import ReplayRequest

INCIDENTS = Path(__file__).resolve().parent / "incidents"
SIZE = (120, 36)
RECORD_BOUND_S, STEP_BOUND_S = 300.0, 120.0
SETTLED_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Keys as Textual names them; `picture` is taken after them."""

    keys: tuple[str, ...] = ()
    picture: str = ""


def keys(*names: str, picture: str = "") -> Step:
    return Step(keys=names, picture=picture)


def typed(line: str, picture: str = "") -> Step:
    """A line in the console, and out of it again."""
    names = {" ": "space"}
    return Step(keys=("colon", *(names.get(c, c) for c in line), "enter", "escape"), picture=picture)


WALKS: dict[str, tuple[tuple[str, ...], tuple[Step, ...]]] = {
    "nan": (
        ("--checkpoint-every", "5"),
        (
            keys(picture="1-opened"),
            keys("slash", *"nan", "enter", "t", picture="2-at-the-nan"),
            typed("print scores", picture="3-scores"),
            keys("w", *"nan(scores)", "enter"),
            keys("N", picture="4-before"),
            keys("n", "O", picture="5-origin"),
            keys("M", picture="6-memory"),
        ),
    ),
    "exception": (
        ("--checkpoint-every", "5"),
        (
            keys(picture="1-opened"),
            typed("break exception"),
            keys("c", picture="2-raised"),
            keys("u", picture="3-caller"),
        ),
    ),
    "hang": (
        ("--checkpoint-every", "5", "--trigger", "hang=10s"),
        (
            keys(picture="1-opened"),
            keys("G", "l", picture="2-lanes"),
            keys("c", picture="3-end"),
            keys("N", picture="4-before"),
        ),
    ),
}


def record(name: str, options: tuple[str, ...], run: Path) -> Path:
    """The capsule that the incident left. The job ends as it ends; one that hangs is interrupted."""
    binaries = Path(sys.executable).parent
    job = [str(binaries / "torchrun"), "--nproc-per-node", "4", str(INCIDENTS / name / "train.py")]
    command = [str(binaries / "prismdbg"), "record", "-o", str(run), *options, "--", *job]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + RECORD_BOUND_S
    try:
        while process.poll() is None and not (name == "hang" and capsules(run)) and time.monotonic() < deadline:
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    if not (found := capsules(run)):
        sys.exit(f"{name} left no capsule in {run}")
    return found[0]


def capsules(run: Path) -> list[Path]:
    return sorted(path for path in (run / "capsules").glob("*") if (path / layout.MANIFEST).is_file())


@contextmanager
def recorded(name: str, options: tuple[str, ...], capsule: Path | None) -> Iterator[Path]:
    if capsule is not None:
        yield capsule
        return
    with tempfile.TemporaryDirectory(prefix="prismdbg-pictures-") as folder:
        yield record(name, options, Path(folder) / name)


async def walk(capsule: Path, steps: tuple[Step, ...], runtime: str, into: Path) -> None:
    with opened(capsule) as whole:
        live = live_rank(ReplayRequest(capsule=whole, runtime=runtime))
        app = PrismApp(whole, capsule.name, live=live)
        try:
            async with app.run_test(size=SIZE, notifications=True) as pilot:
                for step in steps:
                    for key in step.keys:
                        await pilot.press(key)
                        await settled(app, pilot)
                    await settled(app, pilot)
                    if step.picture:
                        (into / f"{step.picture}.svg").write_text(
                            app.export_screenshot(title=f"prismdbg debug {capsule.name}")
                        )
                        print(
                            f"    {into.name}/{step.picture}.svg  at {app.state.moment} {app.state.reason}", flush=True
                        )
        finally:
            live.close()
            if not live.wait(60):
                sys.exit("the replay did not end")


async def settled(app: PrismApp, pilot: Pilot[int]) -> None:
    """The log is read, the rank stands, and nothing was drawn anew for a while."""
    deadline = time.monotonic() + STEP_BOUND_S
    standing = (Phase.STOPPED, Phase.FINISHED, Phase.LOST)
    quiet = 0.0
    while quiet < SETTLED_S:
        await pilot.pause(0.05)
        quiet = quiet + 0.05 if app.recording is not None and app.state.phase in standing else 0.0
        if time.monotonic() > deadline:
            sys.exit(f"the screen did not come to rest: {app.state.phase} {app.state.doing}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("incidents", nargs="*", metavar="INCIDENT", help=f"of {', '.join(WALKS)}; all without")
    parser.add_argument("--capsule", type=Path, help="Use this one instead of recording anew.")
    parser.add_argument("--runtime", default="", help="docker or local.")
    parser.add_argument("--into", type=Path, help="Write there, not beside the READMEs.")
    options = parser.parse_args()
    for name in options.incidents or WALKS:
        record_options, steps = WALKS[name]
        into = options.into or INCIDENTS / name
        into.mkdir(parents=True, exist_ok=True)
        with recorded(name, record_options, options.capsule) as capsule:
            asyncio.run(walk(capsule, steps, options.runtime, into))


if __name__ == "__main__":
    main()
