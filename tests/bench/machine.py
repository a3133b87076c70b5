"""The machine and the versions that numbers belong to, and how busy others kept it meanwhile."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from prismdbg.checkpoint import bundle
from prismdbg.errors import PrismError
from prismdbg.jobs.injection import PACKAGE

_FOLDERS = {"--data": "DATA", "--kept-sweeps": "KEPT", "--output": "OUTPUT"}


def describe() -> str:
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    return (
        f"{os.cpu_count()} x {_processor()}, {memory_gib:.0f} GiB, Linux {platform.release()}; "
        f"Python {platform.python_version()}, torch {version('torch')}, {_criu()}; prismdbg {_commit()}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Taken before a section; `say` gives what it was like since then."""

    began: float
    load: float
    stolen: int
    total: int

    @classmethod
    def now(cls) -> Circumstances:
        stolen, total = _ticks()
        return cls(began=time.time(), load=os.getloadavg()[0], stolen=stolen, total=total)

    def say(self) -> list[str]:
        stolen, total = _ticks()
        share = (stolen - self.stolen) / max(total - self.total, 1)
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.began))
        command = " ".join(["python -m tests.bench", *_named(sys.argv[1:])])
        return [
            f"{day}, {time.time() - self.began:.0f} s, `{command}`; load before: {self.load:.1f}; "
            f"taken by the hypervisor: {share:.1%}",
            describe(),
        ]


def _named(arguments: list[str]) -> Iterator[str]:
    """With names for folders of this machine, which say nothing elsewhere."""
    for before, argument in pairwise(["", *arguments]):
        yield _FOLDERS.get(before, argument)


def _ticks() -> tuple[int, int]:
    numbers = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return numbers[7], sum(numbers)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _criu() -> str:
    try:
        return f"CRIU {bundle.find().version}"
    except PrismError:
        return "no CRIU"


def _commit() -> str:
    asked = ["git", "-C", str(PACKAGE.parent), "describe", "--always", "--dirty"]
    try:
        ran = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return version("prismdbg")
    return f"{version('prismdbg')} at {ran.stdout.strip() or 'no commit'}"
