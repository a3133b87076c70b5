"""Gives inputs to every command, in processes that may be ended, and judges what came of it.

An input is well received where every command accepts it or refuses it with an exit code that says so, within the bounds
of time and memory, and touches nothing beside the input's own folder.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pkgutil
import resource
import select
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import prismdbg_tui

import prismdbg
from prismdbg.cli import main
from tests.fuzz.commands import all_lines, lines_for, nothing_runs
from tests.fuzz.corpus import Corpus, make_corpus
from tests.fuzz.inputs import MOST_BYTES, Made, kept_input, make_input
from tests.fuzz.places import NOT_RUN
from tests.fuzz.traps import BAIT

BOUND_CPU_S = 10.0  # of processor time, for one command: a busy machine is no defect
BOUND_WALL_S = 120.0  # for one command, however busy the machine is
BOUND_BYTES = 1 << 30  # above what the process had before
INPUTS_OF_A_PROCESS = 200
OK, FOUND, USAGE, BAD_CAPSULE, LACKING, DIVERGED, INCONCLUSIVE = 0, 1, 2, 3, 4, 5, 7
FOUND_BY_DIFF = (DIVERGED, INCONCLUSIVE)  # verdicts on two recordings that could both be read
SECRETS_KEPT = (
    " known or possible secret:\n",
    " known or possible secrets:\n",
    " may contain secrets that were not searched for:\n",
)  # by `pack --share`
# What a machine may be said to lack: all else with this exit code would be a bad capsule, or a gap in this harness.
MAY_LACK = (
    NOT_RUN,
    "the installed files have changed since the capture: ",
    "the capsule does not list the installed files of the rank",
    "a checkpoint needs a container or namespaces",
    " cannot be mounted without namespaces",
    "the rank ran as user ",
    " cannot run as a plain process",
    " does not exist on this machine",
)
NO_USAGE = ("verify", "build")  # take whatever is given them: it is never the user who is wrong
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.mkdir": 1, "os.remove": 1, "os.rmdir": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2,
            "os.truncate": 1,
            "os.chmod": 1, "os.chown": 1, "os.utime": 1, "os.setxattr": 1, "shutil.rmtree": 1}  # fmt: skip
_STARTS = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "pickle.find_class",
    "ctypes.dlopen",
)
_HARMLESS = ("/dev/null", "/dev/tty", "/proc/self/clear_refs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Of input `number`: code is None when a command begins; text is what went wrong; done: no more comes of it."""

    number: int
    base: str = ""
    line: str = ""
    story: list[str] = field(default_factory=list)
    code: int | None = None
    cpu_s: float = 0.0
    used_bytes: int = 0
    text: str = ""
    done: bool = False


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of all inputs."""

    codes: Counter[int] = field(default_factory=Counter)
    by_base: Counter[str] = field(default_factory=Counter)
    failures: list[Said] = field(default_factory=list)
    inputs: int = 0
    slowest: Said = field(default_factory=lambda: Said(number=-1))
    largest: Said = field(default_factory=lambda: Said(number=-1))

    def add(self, said: Said) -> None:
        if said.text:
            self.failures.append(said)
        if said.done:
            self.by_base[said.base] += 1
        if said.code is not None:
            self.codes[said.code] += 1
            self.slowest = max(self.slowest, said, key=lambda each: each.cpu_s)
            self.largest = max(self.largest, said, key=lambda each: each.used_bytes)


class Fuzzer:
    """Makes the corpus below `folder` once; `run` judges inputs. `keep`: where what is not well received is copied."""

    def __init__(self, folder: Path, seed: int, keep: Path | None = None) -> None:
        self.folder, self.seed, self.keep = folder, seed, keep
        folder.mkdir()
        _load_commands()
        self.corpus: Corpus = make_corpus(folder)
        self.found: list[Path] = []

    def run(self, numbers: range) -> Iterator[Tally]:
        """What came of them so far, after each. Done by one process after the other: each lasts until it must be
        ended, or has had its share."""
        tally, left = Tally(), list(numbers)
        while left:
            share = left[:INPUTS_OF_A_PROCESS]
            for said in self._in_child(share):
                if said.done:
                    tally.inputs += 1
                    left.pop(0)
                tally.add(said)
                yield tally

    def _in_child(self, numbers: list[int]) -> Iterator[Said]:
        reading, writing = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if not child:
            try:
                os.close(reading)
                self._judge_all(numbers, writing)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(writing)
        last = Said(number=numbers[0])
        try:
            for last in _told(reading):
                yield last
            if not (last.done and last.number == numbers[-1]):
                yield self._cut_short(last, "its process ended")
        except TimeoutError:
            os.kill(child, signal.SIGSTOP)
            yield self._cut_short(last, f"more than {BOUND_WALL_S:.0f} s")
        finally:
            os.close(reading)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def _cut_short(self, last: Said, why: str) -> Said:
        said = replace(last, code=None, text=why, done=True)
        self._keep(said)
        return said

    def _keep(self, said: Said) -> None:
        if self.keep is None:
            return
        target = self.keep / f"{self.seed}-{said.number}"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        if (made := self.folder / "now" / "in").is_dir():
            shutil.copytree(made, target, symlinks=True, ignore=_not_kept, dirs_exist_ok=True)
        lines = [*said.story, "", f"{said.line}: {said.text}"]
        (target / "REPORT").write_text("\n".join(lines) + "\n", errors="replace")

    def _judge_all(self, numbers: list[int], writing: int) -> None:
        """In the child: from here on nothing outside may change."""
        scratch = self.folder / "now"
        outside: list[str] = []

        def tell(said: Said) -> None:
            os.write(writing, json.dumps(asdict(said)).encode() + b"\n")

        _bound(scratch)
        if self.corpus.criu is not None:  # what reads checkpoints is looked for below the home otherwise
            os.environ["PRISMDBG_CRIU"] = str(self.corpus.criu)
        sys.addaudithook(_watch(scratch, outside))
        with nothing_runs(scratch, self.corpus.traps.bait):
            for number in numbers:
                tell(Said(number=number, line="making it"))
                os.chdir(self.folder)
                shutil.rmtree(scratch, ignore_errors=True)
                (scratch / "home").mkdir(parents=True)
                try:
                    rng = Random(f"{self.seed}/{number}")
                    made, lines = self._input(number, _new(scratch / "in"), rng)
                except Exception:
                    tell(Said(number=number, text=f"the fuzzer: {traceback.format_exc()}", done=True))
                    continue
                os.chdir(scratch / "in")
                outside.clear()
                for line in lines:
                    said = Said(number=number, base=made.base, line=" ".join(line), story=made.story)
                    tell(said)
                    verdict = judged(said, line, outside)
                    if verdict.text:
                        self._keep(verdict)
                    tell(verdict)
                tell(Said(number=number, base=made.base, done=True))

    def _input(self, number: int, folder: Path, rng: Random) -> tuple[Made, list[list[str]]]:
        """With the commands that get it: of one that was kept all there are."""
        if not self.found:
            made = make_input(self.corpus, folder, rng)
            return made, lines_for(made, self.corpus, rng)
        made = kept_input(self.found[number], folder)
        reading, running = all_lines(made, self.corpus)
        return made, [*reading, *running]


def _not_kept(folder: str, names: list[str]) -> list[str]:
    """What is too large, and pipes."""
    found = {name: (Path(folder) / name).lstat() for name in names}
    return [name for name, status in found.items() if status.st_size >= MOST_BYTES or stat.S_ISFIFO(status.st_mode)]


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _bound(scratch: Path) -> None:
    os.environ |= {"HOME": str(scratch / "home"), "TMPDIR": str(scratch), "COLUMNS": "100", "TERM": "dumb"}
    tempfile.tempdir = str(scratch)
    sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115  for as long as the process lives
    resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + 2 * BOUND_BYTES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def judged(said: Said, line: list[str], outside: list[str]) -> Said:
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    outside.clear()
    before, began = _memory("VmRSS"), time.process_time()
    code, text, said_text = _run_line(line)
    cpu_s, used = time.process_time() - began, _memory("VmHWM") - before
    problems = [*outside, text or _misjudged(line[0], code, said_text)]
    if cpu_s > BOUND_CPU_S:
        problems.append(f"{cpu_s:.1f} s of processor time")
    if used > BOUND_BYTES:
        problems.append(f"{used >> 20} MiB of memory")
    return replace(said, code=code, cpu_s=cpu_s, used_bytes=used, text="; ".join(filter(None, problems)))


def _misjudged(command: str, code: int, said: str) -> str:
    """What is wrong with this exit code and these words of a command that raised nothing."""
    if BAIT.decode() in said:
        return "it prints what lies outside of the input"
    if code == OK or (command == "diff" and code in FOUND_BY_DIFF):
        return ""
    if code == FOUND and command == "pack" and any(text in said for text in SECRETS_KEPT):
        return ""
    if code == BAD_CAPSULE or (code == USAGE and command not in NO_USAGE):
        return "" if "error: " in said or "bad " in said else f"exit {code} without an error: {said[-200:]!r}"
    if code == LACKING and (command == "doctor" or any(text in said for text in MAY_LACK)):  # its verdict on a job
        return ""
    return f"exit code {code}: {said[-200:]!r}"


def _told(descriptor: int) -> Iterator[Said]:
    pending = b""
    while True:
        if not select.select([descriptor], [], [], BOUND_WALL_S)[0]:
            raise TimeoutError
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        *whole, pending = (pending + data).split(b"\n")
        yield from (Said(**json.loads(line)) for line in whole)


def _load_commands() -> None:
    """Once, not in every child."""
    for package in (prismdbg, prismdbg_tui):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(("prismdbg.rank", "prismdbg._images")) and "__main__" not in module.name:
                importlib.import_module(module.name)


def _run_line(line: list[str]) -> tuple[int, str, str]:
    """Its exit code, what it raised, what it printed."""
    out, error = _stream(), _stream()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            code = main.run(line)
            out.flush()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        except BaseException as raised:
            frames = traceback.extract_tb(raised.__traceback__)
            ours = [f for f in frames if "/prismdbg" in f.filename] or list(frames)
            where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(ours[-3:]))
            return 1, f"{type(raised).__name__}: {str(raised)[:200]} ({where})", ""
    printed = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, error))  # type: ignore[attr-defined]
    return code, "", "".join(printed)


def _stream() -> io.TextIOWrapper:
    """As strict as a terminal."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _watch(inside: Path, outside: list[str]) -> Any:
    """An audit hook that notes what is changed beside the input's folder, and what is started."""

    def is_inside(path: Any) -> bool:
        if isinstance(path, int):
            return True
        if os.fsdecode(path).startswith("/proc/self/fd/"):  # the open file itself
            path = os.readlink(path)  # noqa: PTH115
        text = os.path.realpath(os.path.dirname(os.path.abspath(os.fsdecode(path))))  # noqa: PTH100, PTH120
        return os.fsdecode(path) in _HARMLESS or (text + "/").startswith(f"{inside}/")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if (flags or 0) & _WRITES and not is_inside(path):
                outside.append(f"opened to write: {path!r} {mode}")
        elif event in _CHANGES:
            is_there = event == "os.mkdir" and os.path.isdir(arguments[0])  # noqa: PTH112  # changes nothing
            for path in arguments[: _CHANGES[event]]:
                if not is_there and not is_inside(path):
                    outside.append(f"{event} {path!r}")
        elif event in _STARTS:
            outside.append(f"{event} {str(arguments)[:200]}")

    return hook


def _memory(name: str) -> int:
    """Bytes of this process: a line of /proc/self/status."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(name + ":"))
