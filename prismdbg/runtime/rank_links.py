"""Links of the recorded machine in the place of a replay: a rank's file lies where its name led, and the name is the
link that it was. A program that resolves its own path finds what is beside it then."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from prismdbg.capsule import rank_path
from prismdbg.errors import CapsuleError
from prismdbg.runtime.environment import Environment
from prismdbg.runtime.spec import LaidFile, ReplaySpec

_MOST_STEPS = 40  # as Linux follows at most
_OF_EVERY_PLACE = frozenset(
    (
        *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/run", "/sbin"),
        *("/sys", "/tmp", "/usr", "/var", "/var/tmp"),
    )
)


def with_links(spec: ReplaySpec, links: Mapping[str, str]) -> ReplaySpec:
    """`links`: by name where it leads, as the capsule says. What is a folder in every place stays one, and so does what
    lies on the way to anything of ours, unless it leads there on this machine, too."""
    used = _usable(spec, links)
    if not used:
        return spec
    files = _at_their_places(spec.files, used)
    absent = dict.fromkeys(leads_to(path, used) for path in spec.absent)
    return replace(
        spec,
        files=tuple(files.values()),
        folders=tuple(dict.fromkeys(leads_to(path, used) for path in spec.folders)),
        absent=tuple(path for path in absent if path not in files),
        links=tuple(sorted(used.items())),
    )


def leads_to(path: str, links: Mapping[str, str]) -> str:
    """Where it lies once these links are followed."""
    for _ in range(_MOST_STEPS):
        link = next((name for name in _on_the_way(path) if name in links), None)
        if link is None:
            return path
        path = links[link] + path[len(link) :]
    raise CapsuleError(f"{path[:80]} is a link loop", hint="fetch the capsule again: this copy was altered")


def _usable(spec: ReplaySpec, links: Mapping[str, str]) -> dict[str, str]:
    kept = {*_OF_EVERY_PLACE, *_installed(spec.environment)}
    ours = {name for path in _ours(spec) for name in _on_the_way(path)}
    return {
        name: target
        for name, target in links.items()
        if name not in kept
        and (name not in ours or os.path.realpath(name) == target)
        and not rank_path.problem(name)
        and not rank_path.problem(target)
    }


def _ours(spec: ReplaySpec) -> Iterator[str]:
    yield from (bind.target for bind in spec.all_binds())
    yield from map(str, (*spec.private, spec.session))


def _installed(environment: Environment | None) -> Iterable[str]:
    if environment is None:
        return ()
    return (*environment.folders, *(file.path for file in environment.files))


def _on_the_way(path: str) -> Iterator[str]:
    """The folders from the root on, and the path itself."""
    end = path.find("/", 1)
    while end > 0:
        yield path[:end]
        end = path.find("/", end + 1)
    yield path


def _at_their_places(files: Iterable[LaidFile], links: Mapping[str, str]) -> dict[str, LaidFile]:
    """By target. Of a file with two names it is one: what has a content has it, the later one."""
    found: dict[str, LaidFile] = {}
    for named in files:
        target = leads_to(named.target, links)
        is_there = named.source == Path(named.target) and os.path.realpath(named.target) == target
        source = Path(target) if is_there else named.source
        file = replace(named, source=source, target=target)
        found[target] = _both(found[target], file) if target in found else file
    return found


def _both(first: LaidFile, second: LaidFile) -> LaidFile:
    chosen, other = (first, second) if second.source is None and first.source is not None else (second, first)
    if other.source is None and not other.mode:  # only its name was known
        return chosen
    size_bytes = other.size_bytes if chosen.size_bytes is None else chosen.size_bytes
    return replace(chosen, size_bytes=size_bytes, is_written=first.is_written or second.is_written)
