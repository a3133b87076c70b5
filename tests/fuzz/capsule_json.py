"""Changes of the three files of a capsule that name things of this machine: each as somebody would who knows the format
and wants more of the machine than the rank had."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any

from prismdbg.capsule import layout
from prismdbg.runtime.environment import InstalledFile
from tests.fuzz.traps import Traps, entry_of
from tests.fuzz.values import NUMBERS, TEXTS, other_value

_MANY = (2, 500, 500, 20_000)
Json = dict[str, Any]
Change = Callable[[Json, Traps, Random], None]


def changed_of_machine(name: str, data: bytes, traps: Traps, rng: Random) -> bytes:
    """`name`: of one of the three, without its folder; `data`: as a capture wrote it."""
    value = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        with contextlib.suppress(KeyError, TypeError, IndexError):  # what the last one left is no file
            _CHANGES[name](value, traps, rng)
    return json.dumps(value, ensure_ascii=rng.random() < 0.9).encode("utf-8", "surrogatepass")


def hostile_path(traps: Traps, rng: Random) -> str:
    """One that is there, bent or not, or a text that no path is."""
    path = traps.any_path(rng)
    if rng.random() < 0.6:
        return path
    bent: tuple[Callable[[], str], ...] = (
        lambda: f"{path}/",
        lambda: f"/{path}",
        lambda: f"{path}/..",
        lambda: f"{path}/.",
        lambda: f"{path}/x",
        lambda: f"/proc/self/root{path}",
        lambda: f"/usr/../{path.lstrip('/')}",
        lambda: path.replace("/", "//", 1),
        lambda: f"{path}\n{path}",
        lambda: f"{path}\0",
        lambda: path.lstrip("/"),
        lambda: str(Path(path).parent),
        lambda: rng.choice(TEXTS),
    )
    return rng.choice(bent)()


def _change_files(index: Json, traps: Traps, rng: Random) -> None:
    files = index["files"]
    path = hostile_path(traps, rng)
    choice = rng.random()
    if choice < 0.5:  # what lies there, as somebody has it who knows what it holds
        entry = entry_of(path, traps)
        place = rng.choice(("bound", "bound", "inside", "missing", "redacted"))
        if place == "redacted":  # who knows its content is given the machine's own
            entry["sha256"] = "0" * 64
        files.append({**entry, "place": place})
    elif choice < 0.6:
        rng.choice(files)["path"] = path
    elif choice < 0.7:
        rng.choice(files)["place"] = rng.choice(("bound", "redacted", "inside", "missing", "", "INSIDE", 1))
    elif choice < 0.8:
        rng.choice(files)[rng.choice(("size_bytes", "mode"))] = rng.choice(NUMBERS)
    elif choice < 0.9:
        sha256 = rng.choice(("", "0" * 64, "../" * 21 + "a", "g" * 64, "A" * 64, 7, rng.choice(files)["sha256"]))
        rng.choice(files)["sha256"] = sha256
    else:
        one = rng.choice(files)
        files += [{**one, "path": f"{one['path']}.{number}"} for number in range(rng.choice(_MANY))]


def _change_environment(environment: Json, traps: Traps, rng: Random) -> None:
    folders = environment["folders"]
    choice = rng.random()
    if choice < 0.45:  # by its own size and time, as somebody has it who had the same machine
        _list(folders, _lying_at(hostile_path(traps, rng), rng))
    elif choice < 0.55:
        path = hostile_path(traps, rng)
        folders[path] = [[name, 0o644, 1, 1] for name in ("x", "..", "a\nb", "x" * 300)[: rng.randrange(1, 5)]]
    elif choice < 0.65:
        environment["extra"] = [hostile_path(traps, rng) for _ in range(rng.choice((1, 3, 1000)))]
    elif choice < 0.75:
        entries = rng.choice([entries for entries in folders.values() if entries])
        entry = rng.choice(entries)
        entry[rng.randrange(len(entry))] = rng.choice((other_value(rng), rng.choice(NUMBERS), traps.any_path(rng)))
    elif choice < 0.85:  # a link where there is none, or another one
        _list(folders, InstalledFile(traps.any_path(rng), 0o777, target=hostile_path(traps, rng)))
    elif choice < 0.92:
        folder = rng.choice((*folders, traps.any_path(rng)))
        folders[folder] = [[f"n{number}", 0o644, 1, 1] for number in range(rng.choice(_MANY))]
    else:
        environment["key"] = rng.choice(TEXTS)


def _lying_at(path: str, rng: Random) -> InstalledFile:
    try:
        if (file := InstalledFile.at(path)) is not None:
            return file
    except ValueError:
        pass  # a zero byte, or no text
    return InstalledFile(path, 0o644, rng.choice((0, 1, 4096)), 1)


def _list(folders: Json, file: InstalledFile) -> None:
    """As `Environment.to_json` writes it, also of a name that it could not write."""
    folder, _, name = file.path.rpartition("/")
    entry = [name, file.mode, file.size_bytes, file.mtime_ns, *([file.target] if file.target else [])]
    folders.setdefault(folder, []).append(entry)


def _change_rank(rank: Json, traps: Traps, rng: Random) -> None:
    path = hostile_path(traps, rng)
    choice = rng.random()
    if choice < 0.5:
        rank[rng.choice(("executable", "prefix", "base_prefix", "cwd", "socket", "inject"))] = path
    elif choice < 0.7:
        name = rng.choice(("folders", "absent", "changed", "sys_path", "orig_argv", "argv", "redacted"))
        rank[name] = [*rank.get(name, ()), *(hostile_path(traps, rng) for _ in range(rng.choice((1, 3, 1000))))]
    elif choice < 0.85:
        names = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "PRISMDBG_CONFIG", "PRISMDBG_CRIU",
                 "PRISMDBG_CACHE", "HOME", "PATH", "DOCKER_HOST", "TMPDIR", "A\nB", "")  # fmt: skip
        rank["environment"][rng.choice(names)] = rng.choice((path, "\n".join([path] * 3), rng.choice(TEXTS)))
    elif choice < 0.95:
        name = rng.choice(("uid", "past_records", "peak_bytes", "memory_cap", "started_ns", "torch_threads", "pid"))
        rank[name] = rng.choice(NUMBERS)
    else:
        rank["hardware"]["node"] = rng.choice((path, "a\nb", "-", "x" * 64, "host", other_value(rng)))


_CHANGES: Mapping[str, Change] = {
    PurePosixPath(layout.FILES_INDEX).name: _change_files,
    PurePosixPath(layout.ENVIRONMENT).name: _change_environment,
    PurePosixPath(layout.RANK).name: _change_rank,
}
OF_MACHINE = (layout.FILES_INDEX, layout.ENVIRONMENT, layout.RANK)
