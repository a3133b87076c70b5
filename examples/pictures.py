"""Makes the pictures of the walkthroughs: each incident is recorded, its capsule opened on the screen, and the keys are
pressed that its README names.

    make pictures             # all of them
    make pictures OF=nan      # of one incident
"""

import argparse
import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.start import live_rank
from prismdbg_tui.still_picture import settled

from prismdbg.capsule import layout
from prismdbg.jobs.replay.replay import ReplayRequest
from prismdbg.jobs.storage.pack import opened

EXAMPLES = Path(__file__).resolve().parent
INCIDENTS = EXAMPLES / "incidents"
NEUTRAL = Path("/opt/train")  # where the examples are recorded: pictures show paths of the program
OURS = NEUTRAL / ".copied-for-pictures"
SIZE = (120, 36)
RECORD_BOUND_S, STEP_BOUND_S = 300.0, 120.0
JOB_ENDS_S = 60.0  # so long may a job take that is interrupted because it hangs
CTRL_C_S, CTRL_C_AT_MOST_S = 5.0, 9.0  # what it may take to end the job, and all, once Ctrl-C was pressed


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Keys as Textual names them; `picture` is taken after them."""

    keys: tuple[str, ...] = ()
    picture: str = ""


def keys(*names: str, picture: str = "") -> Step:
    return Step(keys=names, picture=picture)


def typed(line: str, picture: str = "") -> Step:
    """A line in the console, which is left after it."""
    names = {" ": "space"}
    return Step(keys=("colon", *(names.get(c, c) for c in line), "enter", "escape"), picture=picture)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """`capsule`: which of the incident's. `runs`: its rank is brought to life; else one looks at the record."""

    capsule: str
    steps: tuple[Step, ...]
    runs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """`options` of record. `hangs`: the job is interrupted once its capsules are there."""

    options: tuple[str, ...]
    walks: tuple[Walk, ...]
    hangs: bool = False


WALKS: dict[str, Incident] = {
    "nan": Incident(
        options=("--checkpoint-every", "5"),
        walks=(
            Walk(
                capsule="nan-rank2-*",
                steps=(
                    keys(picture="1-opened"),
                    keys("slash", *"nan", "enter", "t", picture="2-at-the-nan"),
                    typed("print scores", picture="3-scores"),
                    keys("w", *"nan(scores)", "enter"),
                    keys("N", "7", picture="4-before"),
                    keys("1", "n", "O", picture="5-origin"),
                    keys("M", picture="6-memory"),
                ),
            ),
        ),
    ),
    "exception": Incident(
        options=("--checkpoint-every", "5"),
        walks=(
            Walk(
                capsule="exception-rank1-*",
                steps=(
                    keys(picture="1-opened"),
                    keys("c", picture="2-raised"),
                    typed("print index * self.window", picture="3-offset"),
                ),
            ),
        ),
    ),
    "memory": Incident(
        options=("--window", "all", "--memory", "--memory-cap", "64MiB"),
        walks=(
            Walk(
                capsule="oom-rank0-*",
                steps=(keys("2", "z", picture="1-curve"), keys("X", picture="2-leaked")),
                runs=False,
            ),
            Walk(capsule="oom-rank0-*", steps=(keys("c"), typed("print curve[-1]", picture="3-kept"))),
        ),
    ),
    "slow": Incident(
        options=("--window", "all", "--trigger", "slow"),
        walks=(
            Walk(
                capsule="slow-rank2-*",
                steps=(
                    keys("G", "l", picture="1-opened"),
                    typed("goto 20.0.1"),
                    typed("print index in self.archived", picture="2-archived"),
                ),
            ),
        ),
    ),
    "hang": Incident(
        options=("--trigger", "hang=10s"),
        walks=(
            Walk(
                capsule="hang-rank[013]-*",
                steps=(keys("l", picture="1-opened"), keys("c", picture="2-answered")),
            ),
            Walk(capsule="hang-rank2-*", runs=False, steps=(keys("G", picture="3-never-joined"),)),
        ),
        hangs=True,
    ),
}


@contextmanager
def neutral_copy() -> Iterator[Path]:
    """The examples in a folder whose name says nothing of this machine; there while the pictures are taken."""
    if NEUTRAL.exists() and not OURS.exists():
        sys.exit(f"{NEUTRAL} is somebody's: pictures are taken of a copy of the examples there; move it away")
    try:
        shutil.rmtree(NEUTRAL, ignore_errors=True)
        NEUTRAL.mkdir(parents=True)
        OURS.touch()
        shutil.copytree(EXAMPLES, NEUTRAL / "examples", ignore=shutil.ignore_patterns("__pycache__", "*.svg"))
    except OSError as error:
        sys.exit(f"the examples cannot be copied to {NEUTRAL}: {error}")
    try:
        yield NEUTRAL / "examples"
    finally:
        shutil.rmtree(NEUTRAL)


def record(name: str, run: Path, examples: Path) -> None:
    """The job ends as it ends; one that hangs is interrupted."""
    incident, binaries = WALKS[name], Path(sys.executable).parent
    job = [str(binaries / "torchrun"), "--nproc-per-node", "4", str(examples / "incidents" / name / "train.py")]
    command = [str(binaries / "prismdbg"), "record", "-o", str(run), *incident.options, "--", *job]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    deadline = time.monotonic() + RECORD_BOUND_S
    with child(command, env=environment, cwd=examples, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and time.monotonic() < deadline:
            if incident.hangs and all(find(run, walk) for walk in incident.walks):
                break
            time.sleep(0.2)


_children: set[int] = set()


@contextmanager
def child(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Is interrupted at the end. What does not end then is killed with all that it started: at once after Ctrl-C, which
    reaches only us, so that it is interrupted once and not twice."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    _children.add(process.pid)
    bound_s = JOB_ENDS_S
    try:
        yield process
    except KeyboardInterrupt:
        bound_s = CTRL_C_S
        raise
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(bound_s)
        except subprocess.TimeoutExpired:
            print(f"the job does not end within {bound_s:g} s: killed", file=sys.stderr)
            kill(process.pid)
            process.wait()
        _children.discard(process.pid)


def kill(pid: int) -> None:
    """With all below it: torchrun gives each rank a process group of its own."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                one.kill()


def ended_by_ctrl_c() -> None:
    """Ctrl-C ends this program in time, also where a screen, a replay or a thread does not let go. A replay ends when
    the process that started it does."""

    def give_up() -> None:
        for pid in list(_children):
            kill(pid)
        remove_copy()
        os._exit(128 + signal.SIGINT)

    def pressed(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # no second one in the middle of cleaning up
        watch = threading.Timer(CTRL_C_AT_MOST_S, give_up)
        watch.daemon = True
        watch.start()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, pressed)


def remove_copy() -> None:
    if OURS.exists():
        shutil.rmtree(NEUTRAL, ignore_errors=True)


def find(run: Path, walk: Walk) -> Path | None:
    """The capsule, once it is whole."""
    found = sorted((run / "capsules").glob(walk.capsule))
    return next((path for path in found if (path / layout.MANIFEST).is_file()), None)


@contextmanager
def recorded(name: str, run: Path | None) -> Iterator[Path]:
    if run is not None:
        yield run
        return
    with neutral_copy() as examples:
        run = NEUTRAL / "runs" / name  # what ran out of memory says where its run lies
        run.parent.mkdir()
        record(name, run, examples)
        yield run


async def take(capsule: Path, walk: Walk, runtime: str, into: Path) -> None:
    command = f"prismdbg {'debug' if walk.runs else 'open'} {capsule.name}"
    with opened(capsule) as whole:
        live = live_rank(ReplayRequest(capsule=whole, runtime=runtime)) if walk.runs else None
        app = PrismApp(whole, capsule.name, live=live)
        try:
            async with app.run_test(size=SIZE, notifications=True) as pilot:
                await settled(app, pilot, STEP_BOUND_S)
                for step in walk.steps:
                    for key in step.keys:
                        await pilot.press(key)
                        await settled(app, pilot, STEP_BOUND_S)
                    if step.picture:
                        drawn = app.export_screenshot(title=command)
                        require_neutral(drawn, step.picture)
                        (into / f"{step.picture}.svg").write_text(drawn)
                        print(f"    {into.name}/{step.picture}.svg  {app.state.phase} {app.state.moment}", flush=True)
        finally:
            if live is not None:
                live.close()
                if not live.wait(60):
                    sys.exit("the replay did not end")


def require_neutral(drawn: str, name: str) -> None:
    """A path of this machine does not belong into a picture that everybody sees."""
    texts = re.findall(r">([^<]*)<", drawn)
    if strange := [text for text in texts if re.search(r"(^|[\s(\"'])/(?!opt/train)[\w.-]+/", text)]:
        sys.exit(f"{name} shows a path of this machine: {strange[0].strip()}")


def main() -> None:
    ended_by_ctrl_c()
    try:
        draw()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def draw() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("incidents", nargs="*", metavar="INCIDENT", help=f"of {', '.join(WALKS)}; all without")
    parser.add_argument("--run", type=Path, help="Use this run's capsules instead of recording anew.")
    parser.add_argument("--runtime", default="", help="docker or local.")
    parser.add_argument("--into", type=Path, help="Write there, not beside the READMEs.")
    options = parser.parse_args()
    for name in options.incidents or WALKS:
        into = options.into or INCIDENTS / name
        into.mkdir(parents=True, exist_ok=True)
        with recorded(name, options.run) as run:
            for walk in WALKS[name].walks:
                if (capsule := find(run, walk)) is None:
                    sys.exit(f"{name} left no capsule {walk.capsule} in {run}")
                asyncio.run(take(capsule, walk, options.runtime, into))


if __name__ == "__main__":
    main()
