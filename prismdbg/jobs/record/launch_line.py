"""The one process that a job's command starts for each rank: torchrun's form is taken apart, any other is as it is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prismdbg.errors import UsageError
from prismdbg.model.plurals import counted

_FLAGS = {"--standalone", "-m", "--module", "--no-python", "--run-path", "--virtual-local-rank"}
_MODULES = {"torch.distributed.run", "torch.distributed.launch"}
_TAKE_A_VALUE = ("-X", "-W", "--check-hash-based-pycs")  # options of Python
_BY_MACHINE = {"auto", "cpu", "gpu", "xpu"}  # as many as it has processors, or devices


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLine:
    """`per_node`, `nodes`: torchrun's numbers of processes per node and of nodes, 0 where it names none."""

    command: tuple[str, ...]
    per_node: int = 0
    nodes: int = 0

    @property
    def world(self) -> int:
        """What torchrun itself would start; 0 where its command does not say."""
        return self.nodes * self.per_node

    def on_node(self, world: int) -> int:
        """Ranks of each node, 0 where torchrun does not say."""
        return self.per_node or (world // self.nodes if self.nodes else 0)

    def check_world(self, world: int) -> None:
        """`UsageError` where torchrun's own numbers make another job."""
        if self.world and self.world != world:
            raise UsageError(
                f"torchrun would start {counted(self.world, 'rank')} (--nnodes {self.nodes} times --nproc-per-node "
                f"{self.per_node}), but --world is {world}",
                hint=f"leave out --nnodes (it follows from --world), or give --world {self.world} and its --mesh",
            )
        if self.nodes and world % self.nodes:
            raise UsageError(
                f"--world {world} is not a multiple of torchrun's --nnodes {self.nodes}",
                hint="leave out --nnodes (it follows from --world), or give a --world that is a multiple of it",
            )
        if self.per_node and world % self.per_node:
            raise UsageError(
                f"--world {world} is not a multiple of torchrun's --nproc-per-node {self.per_node}",
                hint="give a number that divides --world: torchrun starts the same number of ranks on each node",
            )

    def check_program(self) -> None:
        """`UsageError` where the script that Python is to run does not exist."""
        script = _script(self.command)
        if script and not Path(script).exists():
            raise UsageError(
                f"no such file or directory: {script}",
                hint=f"give the path of the program; a relative one starts at {Path.cwd()}",
            )


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
    per_node, nodes, flags, at = 0, 0, set(), 0
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
            per_node = 0 if value in _BY_MACHINE else _number(name, value)
        elif name == "--nnodes":
            nodes = 0 if ":" in value else _number(name, value)  # 1:4 is any number of them
    rest = tuple(words[at:])
    if not rest:
        raise UsageError("torchrun has no script to run", hint="write: -- torchrun --nproc-per-node 8 train.py ...")
    if "--no-python" in flags:
        return LaunchLine(command=rest, per_node=per_node, nodes=nodes)
    if flags & {"-m", "--module"}:
        return LaunchLine(command=(*python, "-u", "-m", *rest), per_node=per_node, nodes=nodes)
    return LaunchLine(command=(*python, "-u", *rest), per_node=per_node, nodes=nodes)


def _script(command: Sequence[str]) -> str:
    """What Python runs as a file; empty for a module, a line of code, or a program that is not Python."""
    words = iter(command[1:] if Path(command[0]).name.startswith("python") else ())
    for word in words:
        if word in _TAKE_A_VALUE:
            next(words, "")
        elif not word.startswith("-"):
            return word
        elif word == "-" or (word[-1] in "cm" and not word.startswith("--")):  # also -um
            return ""
    return ""


def _number(option: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and 0 < len(value) < 9 and int(value)):
        raise UsageError(
            f"torchrun's {option} {value!r} is not a number", hint=f"write: -- torchrun {option} 8 train.py ..."
        )
    return int(value)


def _interpreter(torchrun: str) -> tuple[str, ...]:
    """The Python that this torchrun belongs to: its first line says which."""
    path = shutil.which(torchrun)
    if path is None:
        raise UsageError(f"no such file or directory: {torchrun}", hint="give its path, or write: -- python train.py")
    try:
        with Path(path).open("rb") as file:
            first = file.readline().decode("utf-8", "replace").strip()
    except OSError:
        first = ""
    words = first.removeprefix("#!").split()
    if first.startswith("#!") and words and "python" in Path(words[-1]).name and Path(words[0]).name != "env":
        return tuple(words)
    return (sys.executable,)
