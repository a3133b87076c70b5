"""What a command says to the launcher that it starts: torchrun's, Accelerate's and DeepSpeed's own words, behind
whatever stands before them: `env A=B`, `numactl`, `uv run`, `bash -c`. What a script file starts nobody sees from here.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path


class Launcher(StrEnum):
    """`DEEPSPEED_NODE`: what DeepSpeed's launcher starts on each node."""

    TORCHRUN = "torchrun"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"
    DEEPSPEED_NODE = "deepspeed.launcher.launch"


_MODULES = {
    "torch.distributed.run": Launcher.TORCHRUN,
    "torch.distributed.launch": Launcher.TORCHRUN,
    "accelerate.commands.launch": Launcher.ACCELERATE,
    "deepspeed.launcher.runner": Launcher.DEEPSPEED,
    "deepspeed.launcher.launch": Launcher.DEEPSPEED_NODE,
}
_PROGRAMS = {
    "torchrun": Launcher.TORCHRUN,
    "accelerate-launch": Launcher.ACCELERATE,
    "deepspeed": Launcher.DEEPSPEED,
}
# These start the program that follows their options.
_FOR_ENVIRONMENTS = frozenset(
    {"conda", "env", "hatch", "mamba", "micromamba", "pdm", "pipenv", "pixi", "poetry", "rye", "uv"}
)
_FOR_PROCESSES = frozenset(
    {"chrt", "exec", "ionice", "nice", "nohup", "numactl", "setsid", "stdbuf", "sudo", "taskset", "time", "timeout"}
)
_FOR_MEASURING = frozenset({"nsys", "perf", "py-spy", "strace"})
_WRAPPERS = _FOR_ENVIRONMENTS | _FOR_PROCESSES | _FOR_MEASURING
_SHELLS = frozenset({"bash", "dash", "ksh", "sh", "zsh"})
_PYTHON = re.compile(r"python[0-9.]*")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_OPERATORS = frozenset("();<>|&\n")
_CONFIG_BYTES = 1 << 20
_DEEPEST = 8  # wrappers in wrappers


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """`words`: what follows the launcher's name. environment: what it gets, as far as the command says so."""

    launcher: Launcher
    words: tuple[str, ...]
    environment: Mapping[str, str]


def launch_of(command: Sequence[str], environment: Mapping[str, str]) -> Launch | None:
    """None where the command starts no launcher that is known."""
    return _launch(tuple(command), dict(environment), 0)


def named(word: str) -> tuple[str, str, str]:
    """`--name`, `=` and the value. All of these launchers take `_` for `-`."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") if word.startswith("--") else word, equals, value


def value_of(words: Sequence[str], option: str) -> str:
    """Empty where the option is not there."""
    for at, word in enumerate(words):
        name, equals, value = named(word)
        if name == option:
            return value if equals else "".join(words[at + 1 : at + 2])
    return ""


def accelerate_config(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """The text of the file that `accelerate launch` reads; empty where there is none."""
    caches = environment.get("XDG_CACHE_HOME", "~/.cache")
    default = f"{environment.get('HF_HOME', f'{caches}/huggingface')}/accelerate/default_config.yaml"
    path = Path(value_of(words, "--config-file") or default)
    try:
        with path.expanduser().open("rb") as file:
            return file.read(_CONFIG_BYTES).decode("utf-8", "replace")
    except (OSError, RuntimeError, ValueError):  # no home, or a name that can be none
        return ""


def hosts_of(world_info: str) -> int:
    """How many nodes DeepSpeed's launcher tells those that it starts; 0 where that cannot be read."""
    try:
        hosts = json.loads(base64.urlsafe_b64decode(world_info))
    except (ValueError, RecursionError):
        return 0
    return len(hosts) if isinstance(hosts, dict) else 0


def _launch(command: tuple[str, ...], environment: dict[str, str], depth: int) -> Launch | None:
    is_wrapped = False
    for at, word in enumerate(command if depth < _DEEPEST else ()):
        name, rest = Path(word).name, command[at + 1 :]
        if name in _PROGRAMS:
            return Launch(launcher=_PROGRAMS[name], words=rest, environment=environment)
        if name == "accelerate" and rest[:1] == ("launch",):
            return Launch(launcher=Launcher.ACCELERATE, words=rest[1:], environment=environment)
        if name in _SHELLS:
            return _launch_in_shell(rest, environment, depth)
        if _PYTHON.fullmatch(name):
            return _launch_in_python(rest, environment, depth)
        if name in _WRAPPERS:
            is_wrapped = True
        elif assigned := _ASSIGNED.fullmatch(word):
            environment[assigned[1]] = assigned[2]
        elif not is_wrapped or name.endswith((".py", ".sh")):
            break
    return _module(command, environment)


def _launch_in_python(words: tuple[str, ...], environment: dict[str, str], depth: int) -> Launch | None:
    """A module, or the file of a launcher."""
    if (found := _module(("python", *words), environment)) is not None:
        return found
    at = next((at for at, word in enumerate(words) if not word.startswith("-")), len(words))
    is_known = at < len(words) and Path(words[at]).name in (*_PROGRAMS, "accelerate")
    return _launch(words[at:], environment, depth + 1) if is_known else None


def _module(words: Sequence[str], environment: Mapping[str, str]) -> Launch | None:
    """Also behind a debugger: `python -m debugpy -m torch.distributed.run`."""
    for at, (before, word) in enumerate(pairwise(words)):
        if before == "-m" and word in _MODULES:
            return Launch(launcher=_MODULES[word], words=tuple(words[at + 2 :]), environment=environment)
    return None


def _launch_in_shell(words: Sequence[str], environment: dict[str, str], depth: int) -> Launch | None:
    """The first one of `-c TEXT`."""
    is_text = False
    for word in words:
        if word.startswith("-"):
            is_text = is_text or (not word.startswith("--") and "c" in word)
            continue
        if not is_text:
            return None
        for command in _commands(word):
            found = _launch(tuple(_expanded(command, environment)), environment, depth + 1)
            if found is not None:
                return found
        return None
    return None


def _commands(text: str) -> Iterator[list[str]]:
    """Those of a shell's text, without redirections. None of one that cannot be taken apart."""
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    words: list[str] = []
    try:
        tokens = list(lexer)
    except ValueError:
        return
    is_file = False
    for token in tokens:
        if is_file:
            is_file = False
        elif not _OPERATORS.issuperset(token):
            words.append(token)
        elif set(token) & {"<", ">"}:
            is_file = True
        else:
            yield words
            words = []
    yield words


def _expanded(words: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    """With the values of variables, where they are known. One that is alone may be several words."""
    for word in words:
        expanded = _VARIABLE.sub(lambda found: _value(found, environment), word)
        yield from expanded.split() if _VARIABLE.fullmatch(word) and expanded != word else (expanded,)


def _value(found: re.Match[str], environment: Mapping[str, str]) -> str:
    value = environment.get(found[1] or found[2])
    return value or (found[3] if found[3] is not None else found[0] if value is None else "")
