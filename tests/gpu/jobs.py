"""Programs of this folder, run bare, recorded and emulated, each for a bounded time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs")
CLI = "import sys; from prismdbg.cli.main import main; sys.exit(main())"
BOUND_S = 150.0


class Failed(Exception):
    """Something is not as promised."""


@dataclass
class Done:
    code: int
    output: str
    errors: str

    def objects(self) -> list[dict[str, Any]]:
        """The lines that are JSON. Ranks that print at one moment may share a line: its text and its end are two
        writes."""
        found, read = [], json.JSONDecoder().raw_decode
        for line in self.output.splitlines():
            while line.startswith("{"):
                one, end = read(line)
                found.append(one)
                line = line[end:]
        return found


@dataclass
class Jobs:
    """folder: what the check's jobs write. pairs: how often bare and recorded jobs are timed in turn. sized: the model
    of gpt_steps.py, where it is not the usual one."""

    folder: Path
    pairs: int = 3
    sized: tuple[str, ...] = ()
    count: int = field(default=0)

    def run(self, *command: str | Path, expect: int | None = 0, typed: str = "") -> Done:
        """`Failed`, with the end of what it said, if it ends with another exit code or not in time. `typed`: its
        standard input."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # bitwise results need one order of cuBLAS's sums
        environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "2"}
        words = [str(word) for word in command]
        try:
            done = subprocess.run(
                words, input=typed, capture_output=True, text=True, timeout=BOUND_S, cwd=ROOT, env=environment
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{' '.join(words)} did not end within {BOUND_S:.0f} s") from error
        if expect is not None and done.returncode != expect:
            end = (done.stderr or done.stdout).strip()[-800:]
            raise Failed(f"{' '.join(words)} ended with {done.returncode}: {end}")
        return Done(done.returncode, done.stdout, done.stderr)

    def prismdbg(self, *words: str | Path, expect: int | None = 0, typed: str = "") -> Done:
        return self.run(sys.executable, "-c", CLI, *words, expect=expect, typed=typed)

    def new(self, name: str) -> Path:
        self.count += 1
        return self.folder / f"{self.count}-{name}"

    def bare(self, ranks: int, program: str, *words: str) -> Done:
        return self.run(*launched(ranks, program, *words))

    def record(self, ranks: int, program: str, *words: str, options: tuple[str, ...] = ()) -> tuple[Path, Done]:
        run = self.new("run")
        return run, self.prismdbg("record", "-o", run, *options, "--", *launched(ranks, program, *words))


def launched(ranks: int, program: str, *words: str) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    return [*launcher, str(PROGRAMS / program), *words]
