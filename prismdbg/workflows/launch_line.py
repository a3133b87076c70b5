"""The one process that a job's command starts for each rank: torchrun's form is taken apart, any other is as it is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prismdbg.errors import UsageError

_FLAGS = {"--standalone", "-m", "--module", "--no-python", "--run-path", "--virtual-local-rank"}
_MODULES = {"torch.distributed.run", "torch.distributed.launch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLine:
    """`per_node`: torchrun's number of processes per node, 0 where it names none."""

    command: tuple[str, ...]
    per_node: int = 0


def parse(command: Sequence[str]) -> LaunchLine:
    """`torchrun OPTIONS script args` and `python -m torch.distributed.run OPTIONS script args` lose their launcher."""
    if not command:
        raise UsageError("no program to run", hint="give the command after `--`, as in -- python train.py")
    name = Path(command[0]).name
    if name == "torchrun":
        return _torchrun(_interpreter(command[0]), command[1:])
    if name.startswith("python") and "-m" in command[1:3]:
        at = command.index("-m")
        if at + 1 < len(command) and command[at + 1] in _MODULES:
            return _torchrun(tuple(command[:at]), command[at + 2 :])
    return LaunchLine(command=tuple(command))


def _torchrun(python: tuple[str, ...], words: Sequence[str]) -> LaunchLine:
    per_node, flags, at = 0, set(), 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        name = name.replace("_", "-")
        at += 1
        if name == "--":
            break
        if name in _FLAGS:
            flags.add(name)
            continue
        if not equals:
            value = words[at] if at < len(words) else ""
            at += 1
        if name == "--nproc-per-node":
            per_node = int(value) if value.isdecimal() else 0
    rest = tuple(words[at:])
    if not rest:
        raise UsageError("torchrun is given no script", hint="write: -- torchrun --nproc-per-node 8 train.py ...")
    if "--no-python" in flags:
        return LaunchLine(command=rest, per_node=per_node)
    if flags & {"-m", "--module"}:
        return LaunchLine(command=(*python, "-u", "-m", *rest), per_node=per_node)
    return LaunchLine(command=(*python, "-u", *rest), per_node=per_node)


def _interpreter(torchrun: str) -> tuple[str, ...]:
    """The Python that this torchrun belongs to: its first line says which."""
    path = shutil.which(torchrun)
    if path is None:
        raise UsageError(f"{torchrun} is not there", hint="give its path, or write: -- python train.py")
    try:
        with Path(path).open("rb") as file:
            first = file.readline().decode("utf-8", "replace").strip()
    except OSError:
        first = ""
    words = first.removeprefix("#!").split()
    if first.startswith("#!") and words and "python" in Path(words[-1]).name and Path(words[0]).name != "env":
        return tuple(words)
    return (sys.executable,)
